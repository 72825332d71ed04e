"""Sums over replicas by the names of their values, for tests that need no TensorFlow."""

from __future__ import annotations

from typing import Any

from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.step.reductions import GradientReduction


def reduction(
    key: int,
    operands: str,
    results: str,
    carriers: str,
    gathered: Gathered | None = None,
    **more: Any,
) -> GradientReduction:
    """A sum over replicas of 4 elements, its values and ops by name, as in "g0 g1"."""
    return GradientReduction(
        key=key,
        operands=tuple(map(_value, operands.split())),
        results=tuple(map(_value, results.split())),
        size=4,
        dtype=1,
        divisor=1,
        carriers=(*carriers.split(),),
        gathered=gathered,
        **more,
    )


def _value(text: str) -> Value:
    name, _, number = text.partition(":")
    return Value(name, int(number or 0))
