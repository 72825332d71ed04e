"""Placements and refusals are plain values."""

from __future__ import annotations

from tf_wu_shard.placement import Placement, Refusal, Replicated, Sharded


def test_a_refusal_names_its_place_where_it_has_one() -> None:
    assert str(Refusal("Sum_1", "no rule for Sum")) == "no rule for Sum (Sum_1)"
    assert str(Refusal("", "it has no elements")) == "it has no elements"


def test_placements_are_equal_by_kind_and_shape() -> None:
    assert Sharded((2, 3)) == Sharded((2, 3)) != Sharded((3, 2))
    placements: set[Placement] = {Sharded((2,)), Replicated((2,)), Sharded((2,))}
    assert len(placements) == 2
