"""What one training run of the demo left behind, and how it travels between processes.

A run is written by the process that trained and read by the one that compares. Pure data: no
TensorFlow here. It does not say whether a run is any good; agreement.py does.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
from typing import Any

import numpy as np

from tf_wu_shard.errors import WuShardError

# The tasks there are, and what to call them.
TITLES = {
    "language_model": "Language model",
    "digits": "Digits classifier",
    "workers_language_model": "Language model, workers",
    "tpu_language_model": "Language model, TPU",
}
SCORES = {
    "language_model": "held-out perplexity",
    "digits": "held-out accuracy",
    "workers_language_model": "held-out perplexity",
    "tpu_language_model": "held-out perplexity",
}
# Those whose replicas are emulated TPU cores, and those whose replicas are processes; the others'
# are MirroredStrategy's.
ON_TPUS = frozenset({"tpu_language_model"})
ON_WORKERS = frozenset({"workers_language_model"})

_RECORD = "run.json"
_TENSORS = "tensors.npz"


class DemoError(WuShardError):
    """A run of the demo failed or left nothing to compare."""


class Mode(enum.Enum):
    """How a run updates its weights; the value is its name on the command line and on disk."""

    UNSHARDED = "unsharded"
    """The plain strategy, the baseline."""
    REORDERED = "reordered"
    """The baseline summing its gradients in another order (see `reordering`)."""
    SHARDED = "sharded"
    """The baseline with weight-update sharding on."""


@dataclasses.dataclass(frozen=True)
class ShardedVariable:
    """One line of the report's table of sharded variables."""

    name: str
    shape: tuple[int, ...]
    layout: str
    slots: tuple[str, ...]
    bucket: int
    padding: int
    gathered_in: str = ""


@dataclasses.dataclass(frozen=True)
class Sharding:
    """What the graph pass says it did to the run's train step."""

    verdict: str
    text: str
    variables: tuple[ShardedVariable, ...]
    left_alone: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    slot_bytes_unsharded: int
    slot_bytes_sharded: int
    pass_ms: float
    trace_ms: float
    weight_bytes_unsharded: int = 0
    weight_bytes_sharded: int = 0
    place: str = ""
    elements_sharded: str = ""


@dataclasses.dataclass(frozen=True)
class ClusterFigures:
    """What only a run on several workers has.

    Attributes:
        digests: Of each worker, a SHA-256 of all its weights after the last step.
        loopback_bytes: Bytes a step over the loopback interface, of the steps after the first,
            whoever else uses it; None where the system does not count them.
        votes_s: Seconds that the two votes on the step took, once all workers were there; None
            where nothing was voted on.
    """

    digests: tuple[str, ...]
    loopback_bytes: float | None
    votes_s: float | None


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run measured.

    Attributes:
        mode: How it updated its weights.
        parameters: Number of trained weights.
        losses: One per step, of that step's batch alone.
        step_s: Seconds of each step after the first, which also traces; of the slowest worker.
        first_step_s: Seconds of the first step.
        held_out: The score on data that it did not train on.
        peak_bytes: Largest resident memory of the process, of several that of the largest.
        sharding: What was sharded; None when the pass reported nothing.
        cluster: Where it ran on several workers, what else it measured.
    """

    mode: Mode
    parameters: int
    losses: tuple[float, ...]
    step_s: tuple[float, ...]
    first_step_s: float
    held_out: float
    peak_bytes: int
    sharding: Sharding | None
    cluster: ClusterFigures | None = None

    @property
    def median_step_s(self) -> float:
        """Median seconds of a step, the first left out."""
        return float(np.median(self.step_s))


@dataclasses.dataclass(frozen=True, eq=False)
class Tensors:
    """The final weights and optimizer slots of a run, NumPy arrays by variable path."""

    weights: dict[str, np.ndarray]
    slots: dict[str, np.ndarray]


def strategy_of(task: str) -> str:
    """What makes the replicas of a task, for the reader."""
    if task in ON_WORKERS:
        return "MultiWorkerMirroredStrategy, its workers processes on this machine"
    return "TPUStrategy, its cores emulated" if task in ON_TPUS else "MirroredStrategy"


def replica_word(task: str) -> str:
    """What a replica of a task is called."""
    return "worker" if task in ON_WORKERS else "replica"


def reordering(task: str) -> str:
    """How the baseline of a task comes to sum its gradients in another order, for the reader."""
    if task in ON_WORKERS:
        return "its workers change places"
    return "its replicas change places" if task in ON_TPUS else "ReductionToOneDevice"


def save(folder: pathlib.Path, run: Run, tensors: Tensors) -> None:
    """Writes a run into an existing folder."""
    arrays = {f"weights:{name}": value for name, value in tensors.weights.items()}
    arrays |= {f"slots:{name}": value for name, value in tensors.slots.items()}
    np.savez(folder / _TENSORS, allow_pickle=False, **arrays)
    record = dataclasses.asdict(run) | {"mode": run.mode.value}
    (folder / _RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def load(folder: pathlib.Path) -> tuple[Run, Tensors]:
    """Reads what `save` wrote.

    Raises:
        DemoError: The folder holds no whole run.
    """
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        with np.load(folder / _TENSORS) as arrays:
            named = {name.partition(":")[::2]: arrays[name] for name in arrays.files}
    except (OSError, ValueError) as error:
        raise DemoError(f"{folder} holds no whole run ({error}); run the demo again") from error
    tensors = Tensors(
        weights={name: value for (kind, name), value in named.items() if kind == "weights"},
        slots={name: value for (kind, name), value in named.items() if kind == "slots"},
    )
    return _run(record), tensors


def _run(record: dict[str, Any]) -> Run:
    sharding, cluster = record["sharding"], record["cluster"]
    return Run(
        **record
        | {
            "mode": Mode(record["mode"]),
            "losses": tuple(record["losses"]),
            "step_s": tuple(record["step_s"]),
            "sharding": None if sharding is None else _sharding(sharding),
            "cluster": None if cluster is None else _cluster(cluster),
        }
    )


def _cluster(record: dict[str, Any]) -> ClusterFigures:
    return ClusterFigures(**record | {"digests": tuple(record["digests"])})


def _sharding(record: dict[str, Any]) -> Sharding:
    variables = tuple(
        ShardedVariable(
            **variable | {"shape": tuple(variable["shape"]), "slots": tuple(variable["slots"])}
        )
        for variable in record["variables"]
    )
    left_alone = tuple((name, reason) for name, reason in record["left_alone"])
    return Sharding(
        **record
        | {"variables": variables, "left_alone": left_alone, "notes": tuple(record["notes"])}
    )
