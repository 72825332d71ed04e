"""Where a result lies follows from where its operands lie, or is refused with a reason."""

from __future__ import annotations

import pytest

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import FLOAT32, INT64
from tf_wu_shard.graph.op import Value
from tf_wu_shard.placement import Combine, Cut, Partial, Placement, Replicated, Sharded
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules import registry, shapes
from tf_wu_shard.rules.operation import Operation
from tf_wu_shard.rules.registry import Family, Rule, family_of, op_types, propagate
from tf_wu_shard.rules.shapes import source_operands

CUT, WHOLE, SCALAR = Sharded((4, 3)), Replicated((4, 3)), Replicated(())


def placed(
    op_type: str,
    *operands: Placement | None,
    shape: tuple[int, ...] | None = (4, 3),
    dtype: int = FLOAT32,
    **constants: int,
) -> object:
    inputs = tuple(Value(f"operand_{number}") for number in range(len(operands)))
    known = {1: (constants["axis"],)} if constants else {}
    outcome = propagate(Operation(op_type, "op", inputs, {}, known, shape, dtype), operands)
    return str(outcome) if isinstance(outcome, Refusal) else outcome[0]


def test_an_op_that_no_table_names_is_refused_never_guessed() -> None:
    assert placed("Cumsum", CUT) == "no rule for Cumsum (op)"
    assert family_of("Cumsum") is None


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


def test_what_is_summed_over_shards_is_in_parts() -> None:
    of_rows = Partial((4,), Combine.SUM, (4, 3), (1,), FLOAT32)
    assert placed("Sum", CUT, Replicated((1,)), shape=(4,), axis=-1) == of_rows
    assert placed("L2Loss", CUT, shape=()) == Partial((), Combine.SUM, (4, 3), (0, 1), FLOAT32)
    reason = "the axes of its sum are not known when traced (op)"
    assert placed("Sum", CUT, Replicated((1,)), shape=(4,)) == reason
    reason = "no sum over the replicas is known for its element type, int64 (op)"
    assert placed("Sum", CUT, Replicated((1,)), shape=(4,), axis=1, dtype=INT64) == reason
    reason = "it takes its axes from the values of a sharded tensor (op)"
    assert placed("Mean", CUT, CUT, shape=()) == reason
    unknown = "the shape of its result is not known when the step is traced (op)"
    assert placed("Sum", CUT, Replicated((1,)), shape=None) == unknown


def test_a_relabelled_tensor_has_as_many_elements_as_before() -> None:
    reason = "it makes [5, 4, 3] of [4, 3] (op)"
    assert placed("BroadcastTo", CUT, Replicated((3,)), shape=(5, 4, 3)) == reason


def test_a_cut_operand_is_never_broadcast() -> None:
    reason = "it broadcasts [1] over [4, 3] (op)"
    assert placed("Mul", Sharded((1,)), WHOLE) == reason
    assert placed("Mul", WHOLE, Sharded((3,))) == "it broadcasts [3] over [4, 3] (op)"


def test_an_unknown_shape_is_refused() -> None:
    reason = "the shape of its result is not known when the step is traced (op)"
    assert placed("Mul", CUT, shape=None) == reason
    assert placed("Reshape", CUT, SCALAR, shape=None) == reason


def test_a_relabelled_tensor_lies_where_it_lay() -> None:
    assert placed("Reshape", CUT, Replicated((1,)), shape=(12,)) == Sharded((12,))
    assert placed("Identity", WHOLE) == WHOLE


def test_a_shape_taken_from_a_sharded_tensor_is_refused() -> None:
    reason = "it takes a shape from the values of a sharded tensor (op)"
    assert placed("Reshape", WHOLE, Sharded((2,)), shape=(12,)) == reason


def test_an_op_type_has_one_rule() -> None:
    with pytest.raises(ValueError, match="Mul has a rule already"):
        registry.register(Rule(Family.RELABEL, shapes.relabelled), "Mul")
    assert family_of("Mul") is Family.ELEMENTWISE


def test_every_op_type_on_elements_has_a_family() -> None:
    assert {family_of(t) for t in op_types(Cut.ELEMENTS)} == set(Family)
    assert list(op_types(Cut.ROWS)) == sorted(set(op_types(Cut.ROWS)))


def test_an_operand_of_unknown_shape_is_refused_by_its_name() -> None:
    reason = refusals.Updates.OPERAND_SHAPE_UNKNOWN.at("operand_1")
    assert placed("Mul", CUT, None) == str(reason)


def test_an_identity_of_several_passes_each_on_by_number() -> None:
    assert list(source_operands("IdentityN", 2, 5)) == [2]
    assert list(source_operands("Reshape", 0, 1)) == [0]
