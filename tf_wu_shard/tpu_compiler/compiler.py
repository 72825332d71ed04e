"""The process that compiles: `python -m tf_wu_shard.tpu_compiler.compiler`.

Three commands. `devices` (topology, chip_config) answers where libtpu sees the devices of a slice.
`compile` (hlo, topology, chip_config, optimized) has libtpu compile a module for a slice that need
not exist, writes the optimized text and answers the memory that a device needs. `run` (hlo,
replicas, arguments, results) runs a module once on as many CPU devices of this process. JAX lives
here and TensorFlow does not.
"""

from __future__ import annotations

import pathlib
import sys
import time
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies

from tf_wu_shard.bench.conversation import Channel
from tf_wu_shard.tpu_compiler import executables
from tf_wu_shard.tpu_compiler.stablehlo import collectives_of, shared_memory_of, stablehlo_of


def devices(topology: str, chip_config: str) -> list[list[int]]:
    """Where each device of a slice sits: x, y, z and its place on the chip."""
    return [[*device.coords, device.core_on_chip] for device in _slice(topology, chip_config)]


def compile_for_tpu(hlo: str, topology: str, chip_config: str, optimized: str) -> dict[str, Any]:
    """Compiles a module with one replica on each device of a slice.

    Args:
        hlo: The file of the serialized HloModuleProto.
        topology: The slice, by libtpu's name for it.
        chip_config: libtpu's name for how a chip's cores are joined.
        optimized: The file that the optimized HLO goes to, as text.

    Returns:
        `requested`, how many collectives of each kind the module has; `seconds`, how long it took;
        `error`, in one line, why it does not compile, "" if it does; and if it does `memory`,
        bytes of a device's memory by what they hold.
    """
    start = time.perf_counter()
    module = stablehlo_of(pathlib.Path(hlo).read_bytes())
    answer: dict[str, Any] = {"requested": collectives_of(module), "error": ""}
    try:
        compiled = executables.compile_ahead(module, _slice(topology, chip_config))
    except RuntimeError as error:
        # A step that does not fit is an answer too.
        answer["error"] = str(error).strip().splitlines()[0]
    else:
        text = compiled.hlo_modules()[0].to_string()
        pathlib.Path(optimized).write_text(text, encoding="utf-8")
        memory = compiled.get_compiled_memory_stats()
        answer["memory"] = {
            "argument_bytes": memory.argument_size_in_bytes,
            "output_bytes": memory.output_size_in_bytes,
            "alias_bytes": memory.alias_size_in_bytes,
            "temp_bytes": memory.temp_size_in_bytes,
        }
    return answer | {"seconds": time.perf_counter() - start}


def run_on_cpus(hlo: str, replicas: int, arguments: str, results: str) -> list[list[int]]:
    """Runs a module, one replica a CPU device.

    Args:
        hlo: The file of the serialized HloModuleProto.
        replicas: How many; this process must have as many CPU devices.
        arguments: An .npz file with an array for each parameter, in order and without names of
            their own; the first dimension is the replicas'.
        results: The .npz file that the results go to, in the same form.

    Returns:
        The number of each parameter that shares its memory with a result, and of that result.
    """
    with np.load(arguments) as given:
        parameters = [given[f"arr_{number}"] for number in range(len(given.files))]
    module = stablehlo_of(pathlib.Path(hlo).read_bytes())
    found = executables.run(
        module,
        jax.devices("cpu")[:replicas],
        [[parameter[replica] for parameter in parameters] for replica in range(replicas)],
    )
    stacked = [np.stack(of_one) for of_one in zip(*found, strict=True)]
    np.savez(results, *stacked)
    return [list(pair) for pair in shared_memory_of(module)]


def main() -> int:
    """Serves one parent; returns the exit status."""
    channel = Channel()
    commands: dict[str, Any] = {
        "devices": devices,
        "compile": compile_for_tpu,
        "run": run_on_cpus,
    }
    while (asked := channel.command()) is not None:
        try:
            channel.answer(commands[asked.pop("command")](**asked))
        # Whatever it was, the parent is to hear of it; here it would only be printed.
        except Exception as error:
            channel.fail(error)
    return 0


def _slice(topology: str, chip_config: str) -> Any:
    return topologies.get_topology_desc(
        topology, platform="tpu", chip_config_name=chip_config
    ).devices


if __name__ == "__main__":
    sys.exit(main())
