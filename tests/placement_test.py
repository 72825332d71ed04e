"""Placements are plain values."""

from __future__ import annotations

from tf_wu_shard.placement import Placement, Replicated, Sharded


def test_placements_are_equal_by_kind_and_shape() -> None:
    assert Sharded((2, 3)) == Sharded((2, 3)) != Sharded((3, 2))
    placements: set[Placement] = {Sharded((2,)), Replicated((2,)), Sharded((2,))}
    assert len(placements) == 2
