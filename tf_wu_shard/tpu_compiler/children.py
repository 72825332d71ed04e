"""The two kinds of process that do the work, as the parent starts them.

TensorFlow traces in one, JAX and libtpu compile in the other.
"""

from __future__ import annotations

import importlib.util
import os
import sys

from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.errors import WuShardError

# libtpu looks for a TPU's metadata server, and lets one process at a time load it. It is asked to
# do neither; where it wants a kind of TPU and the names of hosts, any will do.
_LIBTPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # JAX's own computations, of which there are none, would go to the CPU.
    "JAX_PLATFORMS": "cpu",
    # A step counter has 64 bits, which JAX would make 32 of.
    "JAX_ENABLE_X64": "1",
}

# A GPU, if there is one, has no part in either.
_QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}

_NEEDED = ("jax", "jaxlib", "libtpu")


class MissingCompilerError(WuShardError, ImportError):
    """The packages with the TPU compiler are not installed."""


def check_compiler() -> None:
    """Checks, without loading them, that JAX and libtpu are there.

    Raises:
        MissingCompilerError: They are not; the message says how to get them.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingCompilerError(
            f"the TPU compiler is not installed ({', '.join(missing)}):"
            " pip install 'tf-wu-shard[tpu-compile]'"
        )


def tracer() -> Worker:
    """Starts a process that traces steps; see `tpu_compiler.tracer` for its commands."""
    return _start("tracer", _QUIET)


def compiler(cpu_devices: int = 1) -> Worker:
    """Starts a process that compiles modules; see `tpu_compiler.compiler` for its commands.

    Args:
        cpu_devices: How many CPU devices it has, to run modules on.

    Raises:
        MissingCompilerError: JAX or libtpu is not installed.
    """
    check_compiler()
    flags = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={cpu_devices}"
    )
    return _start("compiler", _QUIET | _LIBTPU | {"XLA_FLAGS": flags.strip()})


def _start(name: str, environment: dict[str, str]) -> Worker:
    command = [sys.executable, "-m", f"tf_wu_shard.tpu_compiler.{name}"]
    return Worker(name, command, environment=os.environ | environment)
