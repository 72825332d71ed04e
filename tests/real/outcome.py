"""What sharding did to a program: how much of it, how exactly, and in what time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.equivalence.matrix import differences
from tests.real.program import MIRRORED

# What a variable must have to be sharded where min_elements is left to the dialect: 1024, and on
# TPUs as many for each of the 4 replicas.
MIN_ELEMENTS = {MIRRORED: 1024, "tpu": 4096}


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        error: A traceback, or "".
        weights: Of each trained weight its name, its elements and whether it is in shards.
        state: The same of every other variable.
        reports: The pass's reports, as data.
        arrays: Weights, state and what was seen, by kind and position.
        seconds: What it took.
    """

    error: str = ""
    weights: Sequence[tuple[str, int, bool]] = ()
    state: Sequence[tuple[str, int, bool]] = ()
    reports: Sequence[Mapping[str, Any]] = ()
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a program.

    Attributes:
        unsharded: The traceback of the run without the flag, or "".
        error: That of the run with it.
        elements: Elements of the weights that are not below min_elements.
        share: How much of them is sharded wherever it is updated, 0 to 1.
        reasons: Why each of the others is not, once each.
        apart: By array, how far it is from the unsharded run's, relative to its largest element;
            those without a difference are not named.
        finite: Whether all weights are.
        pass_ms: Time of the pass, of all traces.
        trace_ms: Time of these traces, the pass included.
    """

    unsharded: str
    error: str
    elements: int = 0
    share: float = 0.0
    reasons: tuple[str, ...] = ()
    apart: Mapping[str, float] = dataclasses.field(default_factory=dict)
    finite: bool = True
    pass_ms: float = 0.0
    trace_ms: float = 0.0

    @property
    def farthest(self) -> float:
        """The largest difference."""
        return max(self.apart.values(), default=0.0)


def judged(ground: str, unsharded: Run, sharded: Run) -> Outcome:
    """Holds two runs of a program against each other."""
    if unsharded.error or sharded.error:
        return Outcome(unsharded.error, sharded.error)
    large = [(name, size) for name, size, _ in sharded.weights if size >= MIN_ELEMENTS[ground]]
    reasons = {name: _why_whole(name, sharded.reports) for name, _ in large}
    elements = sum(size for _, size in large)
    in_shards = sum(size for name, size in large if not reasons[name])
    weights = [array for key, array in unsharded.arrays.items() if key.startswith("weight")]
    return Outcome(
        "",
        "",
        elements,
        in_shards / elements if elements else 0.0,
        tuple(f"{name}: {reason}" for name, reason in reasons.items() if reason),
        differences(unsharded.arrays, sharded.arrays),
        all(np.isfinite(array).all() for array in weights),
        sum(report["pass_ms"] for report in sharded.reports),
        sum(report["trace_ms"] for report in sharded.reports),
    )


def _why_whole(name: str, reports: Sequence[Mapping[str, Any]]) -> str:
    """Why a weight is not sharded in every function that updates it; "" where it is."""
    updated = False
    for report in reports:
        updated |= any(one["name"] == name for one in report["variables"])
        for left in report["left_alone"]:
            if left["name"] == name:
                where = f" ({left['where']})" if left["where"] else ""
                return f"{report['function']}: {left['reason']}{where}"
        if not report["variables"] and not report["left_alone"]:
            return "; ".join((f"{report['function']}: {report['verdict']}", *report["notes"]))
    return "" if updated else "no report names it"
