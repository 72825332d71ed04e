"""What only renames or reshapes a tensor leaves it where it lies."""

from __future__ import annotations

from tests.rules.placing import CUT, WHOLE, placed
from tf_wu_shard.placement import Replicated, Sharded


def test_a_relabelled_tensor_has_as_many_elements_as_before() -> None:
    reason = "it makes [5, 4, 3] of [4, 3] (op)"
    assert placed("BroadcastTo", CUT, Replicated((3,)), shape=(5, 4, 3)) == reason


def test_a_relabelled_tensor_lies_where_it_lay() -> None:
    assert placed("Reshape", CUT, Replicated((1,)), shape=(12,)) == Sharded((12,))
    assert placed("Identity", WHOLE) == WHOLE


def test_a_shape_taken_from_a_sharded_tensor_is_refused() -> None:
    reason = "it takes a shape from the values of a sharded tensor (op)"
    assert placed("Reshape", WHOLE, Sharded((2,)), shape=(12,)) == reason
