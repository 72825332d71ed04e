"""What sharding did to a program: how much of it, how exactly, and in what time."""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.equivalence.matrix import differences
from tests.real.program import MIRRORED, TPU, WORKERS

# What a variable must have to be sharded where min_elements is left to the dialect: 1024, and on
# TPUs as many for each of the 4 replicas.
MIN_ELEMENTS = {MIRRORED: 1024, TPU: 4096, WORKERS: 1024}


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
    least = MIN_ELEMENTS[ground]
    large = collections.Counter[str]()
    for name, size, _ in sharded.weights:
        large[_stem(name)] += size if size >= least else 0
    found = {name: _sharded(name, size, sharded.reports, least) for name, size in large.items()}
    elements = sum(large.values())
    in_shards = sum(size for size, _ in found.values())
    weights = [array for key, array in unsharded.arrays.items() if key.startswith("weight")]
    return Outcome(
        "",
        "",
        elements,
        in_shards / elements if elements else 0.0,
        tuple(f"{name}: {reason}" for name, (_, reason) in found.items() if reason),
        differences(unsharded.arrays, sharded.arrays),
        all(np.isfinite(array).all() for array in weights),
        sum(report["pass_ms"] for report in sharded.reports),
        sum(report["trace_ms"] for report in sharded.reports),
    )


def _sharded(
    name: str, size: int, reports: Sequence[Mapping[str, Any]], least: int
) -> tuple[int, str]:
    """How much of the weights of a name is sharded by every function that updates them.

    Several may have one name, as Keras counts no layers inside of a layer of one's own; functions
    count them, in an order of their own.

    Args:
        name: The name, without such a count.
        size: Elements of all weights of it that are not below min_elements.
        reports: Of all functions.
        least: min_elements.

    Returns:
        Their elements in shards, and a reason for what is left; "" where all is sharded.
    """
    if not size:
        return 0, ""
    shared, reason, named = size, "", False
    for report in reports:
        own = [one for one in report["variables"] if _stem(one["name"]) == name]
        done = sum(n for n in (math.prod(one["shape"]) for one in own) if n >= least)
        left = [one for one in report["left_alone"] if _left_whole(one, name)]
        named |= bool(done or left)
        if left:
            shared = min(shared, done)
            where = f" ({left[0]['where']})" if left[0]["where"] else ""
            reason = reason or f"{report['function']}: {left[0]['reason']}{where}"
        if not report["variables"] and not report["left_alone"]:
            shared = 0
            reason = "; ".join((f"{report['function']}: {report['verdict']}", *report["notes"]))
    return (shared, reason) if named or reason else (0, "no report names it")


def _stem(name: str) -> str:
    return re.sub(r"_\d+$", "", name)


def _left_whole(left: Mapping[str, Any], name: str) -> bool:
    # Others of the name may be small; those asked about are not.
    return _stem(left["name"]) == name and "below min_elements" not in left["reason"]
