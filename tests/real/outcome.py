"""What sharding did to a program: how much of it, how exactly, and in what time."""

from __future__ import annotations

import collections
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
    large = [name for name, size, _ in sharded.weights if size >= MIN_ELEMENTS[ground]]
    size_of = collections.Counter[str]()
    for name, size, _ in sharded.weights:
        size_of[name] += size if size >= MIN_ELEMENTS[ground] else 0
    shares = {name: _share(name, sharded.reports) for name in large}
    elements = sum(size_of.values())
    in_shards = sum(share * size_of[name] for name, (share, _) in shares.items())
    weights = [array for key, array in unsharded.arrays.items() if key.startswith("weight")]
    return Outcome(
        "",
        "",
        elements,
        in_shards / elements if elements else 0.0,
        tuple(f"{name}: {reason}" for name, (_, reason) in shares.items() if reason),
        differences(unsharded.arrays, sharded.arrays),
        all(np.isfinite(array).all() for array in weights),
        sum(report["pass_ms"] for report in sharded.reports),
        sum(report["trace_ms"] for report in sharded.reports),
    )


def _share(name: str, reports: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
    """How much of the weights of a name is sharded by every function that updates them.

    Several may have one name, as Keras counts no layers inside of a layer of one's own. Where one
    of them is left alone, as many of the whole count as sharded as the function says.

    Returns:
        The share, and a reason for what is left; "" where all is sharded.
    """
    share, reason, named = 1.0, "", False
    for report in reports:
        done = sum(one["name"] == name for one in report["variables"])
        left = [one for one in report["left_alone"] if _left_whole(one, name)]
        named |= bool(done or left)
        if left:
            share = min(share, done / (done + len(left)))
            where = f" ({left[0]['where']})" if left[0]["where"] else ""
            reason = reason or f"{report['function']}: {left[0]['reason']}{where}"
        if not report["variables"] and not report["left_alone"]:
            share = 0.0
            reason = "; ".join((f"{report['function']}: {report['verdict']}", *report["notes"]))
    return (share, reason) if named or reason else (0.0, "no report names it")


def _left_whole(left: Mapping[str, Any], name: str) -> bool:
    # Others of the name may be small; those asked about are not.
    return left["name"] == name and "below min_elements" not in left["reason"]
