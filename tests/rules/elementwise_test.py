"""An elementwise result is cut like its operands; what would be broadcast in shards is refused."""

from __future__ import annotations

import pytest

from tests.rules.placing import CUT, SCALAR, WHOLE, placed
from tf_wu_shard.placement import Placement, Replicated, Sharded


@pytest.mark.parametrize(
    "operands",
    [
        (CUT, CUT),
        (CUT, WHOLE),
        (CUT, SCALAR),
        (CUT, Replicated((1, 1))),
        (CUT, Replicated((1, 4, 3))),
        (Sharded((12,)), CUT),
        (CUT, Replicated((3,))),
        (Replicated((4, 1)), CUT),
    ],
    ids=str,
)
def test_an_elementwise_result_is_cut_like_its_operands(operands: tuple[Placement, ...]) -> None:
    assert placed("Mul", *operands) == CUT


def test_an_op_that_does_not_broadcast_as_numpy_refuses_smaller_tensors() -> None:
    # Select takes a vector of conditions for a condition of each row.
    reason = "it broadcasts [4] over [4, 3] (op)"
    assert placed("Select", Replicated((4,)), CUT, CUT) == reason
    assert placed("ClipByValue", CUT, Replicated((3,)), SCALAR) == reason.replace("[4]", "[3]")


def test_a_cut_operand_is_never_broadcast() -> None:
    reason = "it broadcasts [1] over [4, 3] (op)"
    assert placed("Mul", Sharded((1,)), WHOLE) == reason
    assert placed("Mul", WHOLE, Sharded((3,))) == "it broadcasts [3] over [4, 3] (op)"
