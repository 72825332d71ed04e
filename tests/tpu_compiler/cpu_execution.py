"""The same program on CPU devices, to see that its numbers are right.

What libtpu compiles for a slice, XLA compiles for as many CPU devices of one process and runs:
every collective is one, so a wrong group or a forgotten gather shows in the numbers. The replicas
run in one step and then it is over; this is no way to train.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Mapping

import numpy as np

from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.tpu_compiler.body import ReplicaBody
from tf_wu_shard.tpu_compiler.hlo import hlo_of


@dataclasses.dataclass(frozen=True)
class Executed:
    """What a step left.

    Attributes:
        outputs: The body's outputs, in order; the first dimension is the replicas'.
        written: The new value of each variable that the body writes, by the name of its argument,
            in the same form. Copies that should be equal are here one by one, to be compared.
    """

    outputs: tuple[np.ndarray, ...]
    written: dict[str, np.ndarray]


def execute(body: ReplicaBody, values: Mapping[str, np.ndarray], worker: Worker) -> Executed:
    """Runs a replica's function once on each of as many CPU devices as it has replicas.

    Args:
        body: The function.
        values: For each argument, by name, the values of all replicas, the first dimension theirs.
        worker: A process of `children.compiler`, with enough CPU devices.

    Returns:
        What every replica has afterwards.

    Raises:
        LoweringError: The body cannot be turned into HLO.
        WorkerError: The program does not compile or does not run.
    """
    with tempfile.TemporaryDirectory(prefix="wu_shard_") as name:
        folder = pathlib.Path(name)
        (folder / "step.pb").write_bytes(hlo_of(body))
        given = [np.asarray(values[argument.name]) for argument in body.arguments]
        np.savez(folder / "arguments.npz", *given)
        shared = worker.ask(
            "run",
            hlo=str(folder / "step.pb"),
            replicas=body.num_replicas,
            arguments=str(folder / "arguments.npz"),
            results=str(folder / "results.npz"),
        )
        with np.load(folder / "results.npz") as found:
            results = [found[f"arr_{number}"] for number in range(len(found.files))]
    return Executed(
        tuple(results[: len(body.outputs)]),
        {body.arguments[argument].name: results[result] for argument, result in shared},
    )
