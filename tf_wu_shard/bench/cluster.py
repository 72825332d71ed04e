"""What a sharded step costs on a cluster of worker processes on this machine.

Clusters are launched in turn, unsharded and sharded, as a launch's times stay apart from the next
one's: each takes all its steps alone. Figures are medians over the launches. Bytes are those of the
loopback interface, whoever else uses it.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Sequence

from tf_wu_shard.bench import local_cluster, loopback
from tf_wu_shard.bench.agreement_time import seconds_of_agreements
from tf_wu_shard.bench.conversation import WorkerError
from tf_wu_shard.bench.settings import Settings
from tf_wu_shard.errors import OptionError

Say = Callable[[str], None]

# As many as two cores bear.
DEFAULT_WORKERS = 4

# In each sharded launch, besides that on the step.
_REHEARSALS = 10

_MB = 1e6


@dataclasses.dataclass(frozen=True)
class Launch:
    """What one launch of a cluster took.

    Attributes:
        step_s: Median seconds of a step, of the slowest worker.
        processor_s: Seconds of the processor a step, of all workers together.
        loopback_bytes: Bytes a step over the loopback interface; None where the system does not
            count them.
        memory_growth: Bytes of the largest worker's peak resident memory, less those after imports.
        slot_bytes: Bytes of slots that a worker keeps.
        parameter_bytes: Of the trained weights.
        weights: What differs if a bit of the trained weights does.
        agreement_s: Seconds that the two votes on the step took, once all workers were there; None
            where nothing was voted on.
        rehearsals_s: The same of votes on nothing, which workers came to at random times.
    """

    step_s: float
    processor_s: float
    loopback_bytes: float | None
    memory_growth: int
    slot_bytes: int
    parameter_bytes: int
    weights: str
    agreement_s: float | None = None
    rehearsals_s: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class ClusterResult:
    """What launches took, `unsharded[i]` just before `sharded[i]`."""

    settings: Settings
    unsharded: tuple[Launch, ...]
    sharded: tuple[Launch, ...]

    def ratios(self, figure: str) -> list[float]:
        """Sharded over unsharded, pair by pair, of a figure of `Launch`, where it is known."""
        pairs = [
            (getattr(one, figure), getattr(other, figure))
            for one, other in zip(self.sharded, self.unsharded, strict=True)
        ]
        return [one / other for one, other in pairs if one is not None and other]

    @property
    def weights_are_equal(self) -> bool:
        """Whether all launches left the same weights, to the bit."""
        return len({launch.weights for launch in (*self.unsharded, *self.sharded)}) == 1

    def to_json(self) -> str:
        """All figures of all launches as indented JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    def __str__(self) -> str:
        """The table that the command prints."""
        settings = self.settings
        sizes = "".join(f" {name} {size}" for name, size in settings.model_sizes.items())
        title = (
            f"{settings.model}{sizes}, {self.sharded[0].parameter_bytes / _MB:.1f} MB of weights,"
            f" {settings.optimizer}, {settings.replicas} workers, batch {settings.batch} a worker,"
            f" {len(self.sharded)} launches of {settings.steps} steps"
        )
        rows = [
            ("step", "step_s", "s", 1.0),
            ("processor a step", "processor_s", "s", 1.0),
            ("loopback a step", "loopback_bytes", "MB", _MB),
            ("memory growth", "memory_growth", "MB", _MB),
            ("slots a worker", "slot_bytes", "MB", _MB),
        ]
        lines = [title, "", f"{'':<18}{'unsharded':>14}{'sharded':>14}{'ratio':>8}  range"]
        lines += [self._row(*row) for row in rows]
        equal = "equal to the bit" if self.weights_are_equal else "not equal to the bit"
        return "\n".join([*lines, "", self._agreement(), f"weights of all launches: {equal}"])

    def _agreement(self) -> str:
        on_steps = [one.agreement_s for one in self.sharded if one.agreement_s is not None]
        rehearsed = [seconds for one in self.sharded for seconds in one.rehearsals_s]
        if not on_steps or not rehearsed:
            return "agreement: none was needed"
        return (
            f"agreement {_ms(rehearsed)} once all workers were there, median of {len(rehearsed)}"
            f" (largest {max(rehearsed) * 1e3:.1f} ms); on the step {_ms(on_steps)}, median of"
            f" {len(on_steps)}"
        )

    def _row(self, name: str, figure: str, unit: str, scale: float) -> str:
        both = [
            [getattr(launch, figure) for launch in mode] for mode in (self.unsharded, self.sharded)
        ]
        if any(value is None for values in both for value in values):
            return f"{name:<18}{'-':>14}{'-':>14}{'-':>8}"
        shown = [f"{statistics.median(values) / scale:.3f} {unit}" for values in both]
        ratios = self.ratios(figure)
        if not ratios:
            return f"{name:<18}{shown[0]:>14}{shown[1]:>14}{'-':>8}"
        middle = statistics.median(ratios)
        span = f"{min(ratios):.3f} to {max(ratios):.3f}"
        return f"{name:<18}{shown[0]:>14}{shown[1]:>14}{middle:>8.3f}  {span}"


def measure_cluster(settings: Settings, launches: int, say: Say) -> ClusterResult:
    """Runs the benchmark.

    Args:
        settings: What is measured; `replicas` is the number of workers.
        launches: How many pairs of launches.
        say: Called with a line on what goes on.

    Raises:
        OptionError: The model cannot be built as the settings say, or there are no launches.
        WorkerError: A worker failed, for one because nothing could be sharded.
    """
    if launches < 1:
        raise OptionError(f"launches must be at least 1, not {launches}")
    found: dict[str, list[Launch]] = {"unsharded": [], "sharded": []}
    for number in range(1, launches + 1):
        for mode, done in found.items():
            say(f"launch {number} of {launches}, {mode}")
            done.append(_launch(settings, mode))
    return ClusterResult(settings, tuple(found["unsharded"]), tuple(found["sharded"]))


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.1f} ms"


def _launch(settings: Settings, mode: str) -> Launch:
    with local_cluster.running(settings.replicas, "tf_wu_shard.bench.cluster_worker") as workers:
        built = workers.ask("build", settings=dataclasses.asdict(settings), mode=mode)
        for _ in range(settings.warmup):
            workers.ask("step")
        before = loopback.received_bytes()
        taken = [workers.ask("step") for _ in range(settings.steps)]
        moved = loopback.bytes_between(before, loopback.received_bytes())
        memory = max(workers.ask("memory"))
        slots = built[0]["slot_bytes"]
        on_step: list[float] = []
        rehearsals: list[float] = []
        if mode == "sharded":
            slots = max(workers.ask("slots"))
            on_step = seconds_of_agreements(workers.ask("votes"))
            workers.ask("rehearse", times=_REHEARSALS)
            rehearsals = seconds_of_agreements(workers.ask("votes"))[len(on_step) :]
        digests = set(workers.ask("digest"))
    if len(digests) > 1:
        raise WorkerError(f"{mode}: the workers' weights are not the same after training")
    return Launch(
        step_s=statistics.median(max(w["seconds"] for w in step) for step in taken),
        processor_s=sum(w["processor_seconds"] for step in taken for w in step) / settings.steps,
        loopback_bytes=None if moved is None else moved / settings.steps,
        memory_growth=memory,
        slot_bytes=slots,
        parameter_bytes=built[0]["parameter_bytes"],
        weights=digests.pop(),
        agreement_s=on_step[0] if on_step else None,
        rehearsals_s=tuple(rehearsals),
    )
