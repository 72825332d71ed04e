"""The machine that the check runs on: versions, GPUs, and what links them."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.errors import WuShardError
from tools.gpu import process

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Loading TensorFlow takes seconds; a driver that does not answer takes for ever.
_LIMIT_S = 180.0


class MachineError(WuShardError, RuntimeError):
    """What the check needs is not there; the message says what to do."""


def look(on_gpus: bool) -> dict[str, Any]:
    """Asks TensorFlow and the driver.

    Args:
        on_gpus: Whether GPUs have a part in it.

    Returns:
        `system`, `commit` of the checkout, `versions` and `gpus` as `machine_run` has them, and
        `nvidia_smi` and `links`, what the driver's tool says of GPUs; "" where it is not there.

    Raises:
        MachineError: TensorFlow cannot be loaded.
    """
    hidden = {} if on_gpus else {"CUDA_VISIBLE_DEVICES": ""}
    ended = process.run(
        [sys.executable, "-m", "tools.gpu.machine_run"],
        environment=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"} | hidden,
        folder=ROOT,
        limit_s=_LIMIT_S,
    )
    if ended.status != 0:
        raise MachineError(
            f"the process that asks TensorFlow for its devices {ended.described(_LIMIT_S)};"
            f" its log ends with\n{ended.last_log_lines}"
        )
    query = "--query-gpu=index,name,driver_version,memory.total,pcie.link.gen.max"
    return {
        "system": platform.platform(),
        "commit": _said("git", "rev-parse", "HEAD"),
        **json.loads(ended.last_printed_line),
        "nvidia_smi": _said("nvidia-smi", query, "--format=csv") if on_gpus else "",
        "links": _said("nvidia-smi", "topo", "-m") if on_gpus else "",
    }


def gpus_to_use(found: Sequence[Any], wanted: int | None, driver: str) -> int:
    """How many GPUs the check takes.

    Args:
        found: Those that TensorFlow has.
        wanted: How many the user wants; None for all.
        driver: What `nvidia-smi` lists, with a heading.

    Raises:
        MachineError: They are too few.
    """
    least = wanted or 2
    if len(found) >= least:
        return wanted or len(found)
    listed = max(len(driver.splitlines()) - 1, 0)
    if listed > len(found):
        cure = (
            f"nvidia-smi lists {listed}, so this TensorFlow cannot use them: see whether it was"
            " installed as tensorflow[and-cuda], and what CUDA_VISIBLE_DEVICES hides"
        )
    else:
        cure = "to try the check itself on logical CPU devices, pass --logical-cpus 2"
    raise MachineError(f"TensorFlow has {len(found)} GPUs here and {least} are needed; {cure}")


def _said(*command: str) -> str:
    """What a command prints; "" where it is not there or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
