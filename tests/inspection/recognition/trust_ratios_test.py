"""LAMB's and LARS's factors are found, guarded as they are, and no other quotient of norms."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum
from tf_wu_shard.inspection.recognition.trust_ratios import TRUST, trust_ratios


class Update:
    """A weight w that moves by g, times what a test says."""

    def __init__(self) -> None:
        self.algebra = Algebra()
        self.w, self.g = self.algebra.thing("w"), self.algebra.thing("g")

    def norm(self, value: Sum) -> Sum:
        squares = self.algebra.multiplied(value, value)
        return self.algebra.raised(self.algebra.thing("sum of", squares), 0.5)

    def guarded(self, one: Sum, other: Sum, ratio: Sum) -> Sum:
        nothing, unit = self.algebra.number(0.0), self.algebra.number(1.0)
        greater = [self.algebra.thing("greater", norm, nothing) for norm in (one, other)]
        inner = self.algebra.thing("select", greater[1], ratio, unit)
        return self.algebra.thing("select", greater[0], inner, unit)

    def over(self, one: Sum, other: Sum) -> Sum:
        return self.algebra.multiplied(one, self.algebra.raised(other, -1.0))

    def found(self, factor: Sum, step: Sum) -> list[str]:
        """What the factor is called, of a weight that moves by it times a step."""
        moved = self.algebra.added([self.w, self.algebra.multiplied(factor, step)])
        values: Any = types.SimpleNamespace(
            algebra=self.algebra,
            weight="w",
            gradient=self.algebra.only(self.g),
            old={"w": self.w},
            written={"w": [moved]},
        )
        return list(trust_ratios(values).values())


@pytest.fixture
def update() -> Update:
    return Update()


def test_lambs_ratio_is_of_the_weight_and_the_step_that_it_scales(update: Update) -> None:
    step = update.algebra.added([update.g, update.algebra.thing("m")])
    norms = update.norm(update.w), update.norm(step)
    assert update.found(update.guarded(*norms, update.over(*norms)), step) == [TRUST]
    other = update.norm(update.w), update.norm(update.algebra.thing("m"))
    assert update.found(update.guarded(*other, update.over(*other)), step) == []


def test_lars_adds_decay_to_the_gradients_norm(update: Update) -> None:
    one, other = update.norm(update.w), update.norm(update.g)
    decayed = update.algebra.added([other, update.algebra.scaled(one, 0.01)])
    step = update.algebra.thing("m")
    assert update.found(update.guarded(one, other, update.over(one, decayed)), step) == [TRUST]


def test_a_quotient_that_nothing_guards_or_that_is_turned_around_is_none(update: Update) -> None:
    norms = update.norm(update.w), update.norm(update.g)
    assert update.found(update.over(*norms), update.g) == []
    turned = update.over(norms[1], norms[0])
    assert update.found(update.guarded(*norms, turned), update.g) == []
