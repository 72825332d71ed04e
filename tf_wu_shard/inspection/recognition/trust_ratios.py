"""The factors by which LAMB and LARS scale a layer's step: its weight's norm over another norm.

You et al. (2020), LAMB: |w| / |u| where both are positive, 1 elsewhere; u is the step that is
scaled. You et al. (2017), LARS: |w| / (|g| + b |w|) where both are positive; g is the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum
from tf_wu_shard.inspection.recognition.update_values import UpdateValues

TRUST = "trust"

# A layer's step is scaled once.
_MOST_CHOICES = 4


def trust_ratios(values: UpdateValues) -> dict[int, str]:
    """What the trust ratios among the things of an update are called, by number.

    Args:
        values: The update's values.
    """
    algebra = values.algebra
    ((weight, _),) = next(iter(values.old[values.weight]))
    norm = _norm(algebra, values.old[values.weight])
    gradient = _norm(algebra, algebra.once(values.gradient))
    found: dict[int, str] = {}
    for written in [found[-1] for found in values.written.values() if found]:
        for number, step in _scaled(algebra, written):
            below = _norm(algebra, step)
            ratios = [
                algebra.multiplied(norm, algebra.raised(over, -1.0))
                for over in (below, gradient, algebra.added([gradient, norm]))
            ]
            norms = (below, gradient, gradient)
            said = algebra.text(algebra.once(number), {weight: "w"})
            for ratio, other in zip(ratios, norms, strict=True):
                if said == algebra.text(_guarded(algebra, norm, other, ratio), {weight: "w"}):
                    found[number] = TRUST
    return found


def _scaled(algebra: Algebra, written: Sum) -> Iterator[tuple[int, Sum]]:
    """Choices by a condition that terms are times, each with the sum of what it is times."""
    times: dict[int, dict[tuple[tuple[int, float], ...], float]] = {}
    for product, factor in written.items():
        for number, exponent in product:
            if exponent == 1.0 and algebra.made(number)[0] == "select":
                rest = tuple(p for p in product if p[0] != number)
                times.setdefault(number, {})[rest] = factor
    yield from islice(times.items(), _MOST_CHOICES)


def _norm(algebra: Algebra, value: Sum) -> Sum:
    return algebra.raised(algebra.thing("sum of", algebra.multiplied(value, value)), 0.5)


def _guarded(algebra: Algebra, one: Sum, other: Sum, ratio: Sum) -> Sum:
    """The ratio where both norms are positive."""
    nothing, unit = algebra.number(0.0), algebra.number(1.0)
    inner = algebra.thing("select", algebra.thing("greater", other, nothing), ratio, unit)
    return algebra.thing("select", algebra.thing("greater", one, nothing), inner, unit)
