"""How the pass's own time grows with the number of variables, and its price where it has no work.

Answers: is the pass linear, and what does a function without a gradient reduction pay. Functions
are traced and never run; each count of variables has a process of its own.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable

from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.bench.settings import Settings

DEFAULT_REPLICAS = 2
COUNTS = (200, 2000)


@dataclasses.dataclass(frozen=True)
class Traced:
    """One traced training step: how many variables it updates, milliseconds of pass and trace."""

    variables: int
    pass_ms: float
    trace_ms: float


@dataclasses.dataclass(frozen=True)
class Scaling:
    """What the scaling run found.

    Attributes:
        replicas: Of the strategy.
        optimizer: A name in `tf_wu_shard.bench.optimizers.SLOTS`.
        few: The step with fewer variables.
        many: The one with more.
        no_reduction_ms: The pass on an evaluation with the fewer variables, in which no gradient is
            reduced and nothing is to be done, milliseconds.
    """

    replicas: int
    optimizer: str
    few: Traced
    many: Traced
    no_reduction_ms: float

    @property
    def ratio(self) -> float:
        """Pass time with many variables over that with few."""
        return self.many.pass_ms / self.few.pass_ms

    def to_json(self) -> str:
        """Returns all fields and the ratio as indented JSON text."""
        return json.dumps(dataclasses.asdict(self) | {"ratio": self.ratio}, indent=2) + "\n"

    def __str__(self) -> str:
        """The table that the command prints."""
        lines = [f"{self.optimizer}, {self.replicas} replicas", ""]
        lines.append(f"{'variables':>10}{'pass':>14}{'trace':>14}{'share':>8}")
        for traced in (self.few, self.many):
            passed, whole = f"{traced.pass_ms:.1f} ms", f"{traced.trace_ms:.1f} ms"
            share = f"{traced.pass_ms / traced.trace_ms:.1%}"
            lines.append(f"{traced.variables:>10}{passed:>14}{whole:>14}{share:>8}")
        times = self.many.variables / self.few.variables
        lines.append("")
        lines.append(f"{times:.0f} times the variables cost {self.ratio:.1f} times the pass")
        lines.append(f"no gradient reduction: {self.no_reduction_ms * 1000:.0f} microseconds")
        return "\n".join(lines)


def measure_scaling(
    optimizer: str,
    replicas: int,
    say: Callable[[str], None],
    counts: tuple[int, int] = COUNTS,
) -> Scaling:
    """Traces a step with few variables, one with many, and a function that trains nothing.

    Args:
        optimizer: A name in `tf_wu_shard.bench.optimizers.SLOTS`.
        replicas: Of the MirroredStrategy, at least 2.
        say: Called with a line on what goes on.
        counts: Few and many variables.

    Raises:
        OptionError: An argument names nothing known or is out of range.
        WorkerError: A process failed, for one because nothing could be sharded.
    """
    checked = Settings(optimizer=optimizer, replicas=replicas)
    few, many = (_traced(count, optimizer, replicas, say) for count in counts)
    say("an evaluation through the pass")
    with _start() as worker:
        no_reduction_ms = worker.ask("no_reduction", count=counts[0], replicas=replicas)
    return Scaling(checked.replicas, checked.optimizer, few, many, no_reduction_ms)


def _traced(count: int, optimizer: str, replicas: int, say: Callable[[str], None]) -> Traced:
    say(f"tracing a step with {count} variables")
    with _start() as worker:
        numbers = worker.ask("step", count=count, optimizer=optimizer, replicas=replicas)
    return Traced(count, **numbers)


def _start() -> Worker:
    return Worker("scaling", [sys.executable, "-m", "tf_wu_shard.bench.scaling_worker"])
