"""What follows from a replica's batch, from sums over replicas, and from gradients of weights."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tests.partial_sums.made_reductions import reduction
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.partial_sums.steps.batch_flow import BatchFlow
from tf_wu_shard.step.reductions import GradientReduction

TEXT = """
size = Const() {value=2}
key = Const() {value=1}
other = Placeholder() [4]
x# = Placeholder() [4] @d#
g# = Square(x#) [4] @d#
l# = L2Loss(x#) [4] @d#
sum# = CollectiveReduceV2(g#, size, key) {merge_op=Add final_op=Id} [4] @d#
loss# = CollectiveReduceV2(l#, size, key) {merge_op=Add final_op=Id} [4] @d#
"""

BATCHES = [[Value("x0")], [Value("x1")]]
OF_W = reduction(0, "g0 g1", "sum0 sum1", "sum0 sum1")
OF_LOSS = reduction(1, "l0 l1", "loss0 loss1", "loss0 loss1")

# The bits of a step of two copies and one weight.
FIRST, SECOND, JOINED, WEIGHT = 1, 2, 4, 8


def flow_of(
    text: str = "",
    *,
    batches: list[list[Value]] = BATCHES,
    gradients: dict[str, list[GradientReduction]] | None = None,
    others: list[GradientReduction] | None = None,
) -> BatchFlow:
    """The flow of `TEXT` and more ops, in which `sum#` is the gradient of w."""
    view = view_of(TEXT + text)
    found = {"w": [OF_W]} if gradients is None else gradients
    return BatchFlow(view, batches, found, [OF_LOSS] if others is None else others)


def test_a_step_without_batches_and_sums_follows_from_nothing() -> None:
    flow = flow_of(batches=[], gradients={}, others=[])
    assert (flow.copies, flow.joined, flow.weights, flow.carriers) == (0, 1, {}, frozenset())
    assert flow.of(Value("g0")) == flow.of(Value("sum0")) == 0
    assert flow.copy_of(0) is None and [*flow.leaving()] == []


def test_each_copy_each_weight_and_all_other_sums_have_a_bit() -> None:
    flow = flow_of(gradients={"w": [OF_W], "v": []})
    assert (flow.copies, flow.joined) == (FIRST | SECOND, JOINED)
    assert flow.weights == {"w": WEIGHT, "v": 2 * WEIGHT}
    assert flow.carriers == {"sum0", "sum1", "loss0", "loss1"}


def test_a_value_follows_from_its_own_copys_batch() -> None:
    flow = flow_of("both# = AddV2(g#, other) [4] @d#")
    assert [flow.of(Value(f"both{copy}")) for copy in range(2)] == [FIRST, SECOND]
    assert flow.of(Value("other")) == flow.of(Value("size")) == 0


def test_what_several_copies_have_is_joined() -> None:
    flow = flow_of("met = AddV2(g0, g1) [4]\nafter = Square(met) [4]")
    assert flow.of(Value("met")) == flow.of(Value("after")) == FIRST | SECOND | JOINED


def test_a_sum_follows_from_no_batch_any_more() -> None:
    flow = flow_of("step# = Mul(sum#, other) [4] @d#\nscaled# = Mul(loss#, other) [4] @d#")
    assert flow.of(Value("sum1")) == flow.of(Value("step1")) == WEIGHT
    assert flow.of(Value("loss0")) == flow.of(Value("scaled0")) == JOINED


def test_an_op_that_carries_a_sum_takes_nothing_of_its_operands() -> None:
    view = view_of(TEXT + "step0 = Mul(sum0, x0) [4]")
    flow = BatchFlow(view, BATCHES, {"w": [OF_W]}, [OF_LOSS])
    assert flow.of_op(view.ops["sum0"]) == 0
    assert flow.of_op(view.ops["g0"]) == FIRST
    assert flow.of_op(view.ops["step0"]) == WEIGHT | FIRST


def test_of_a_pack_each_part_follows_from_its_own_gradient_and_the_pack_from_none() -> None:
    flow = flow_of(
        "split# = SplitV(sum#, size, key) [2] [2] @d#",
        gradients={"w": [reduction(0, "g0 g1", "split0 split1", "sum0 sum1")]},
        others=[reduction(1, "g0 g1", "split0:1 split1:1", "sum0 sum1")],
    )
    assert flow.of(Value("sum0")) == 0
    assert [flow.of(Value("split1", part)) for part in range(2)] == [WEIGHT, JOINED]


@pytest.mark.parametrize(
    ("bits", "copy"),
    [
        (0, None),
        (FIRST, 0),
        (SECOND, 1),
        (SECOND | WEIGHT, 1),
        (FIRST | SECOND, None),
        (FIRST | JOINED, None),
        (JOINED, None),
        (WEIGHT, None),
    ],
)
def test_something_is_of_a_copy_where_no_other_and_no_sum_has_a_part_in_it(
    bits: int, copy: int | None
) -> None:
    assert flow_of().copy_of(bits) == copy


@pytest.mark.parametrize("op_type", ["Shape", "Size", "Rank"])
def test_the_shape_of_a_gradient_is_its_weights_whatever_is_in_the_batch(op_type: str) -> None:
    shapes = f"of_gradient# = {op_type}(g#) [1] @d#\nof_batch# = {op_type}(x#) [1] @d#"
    flow = flow_of(shapes)
    assert flow.of(Value("of_gradient0")) == 0
    assert flow.of(Value("of_batch0")) == FIRST


def test_that_holds_for_a_gradient_in_every_shape_on_its_way_into_the_sum() -> None:
    text = """
    flat# = Reshape(g#, other) [4] @d#
    sent# = Identity(flat#) [4] @d#
    all# = CollectiveReduceV2(sent#, size, key) {merge_op=Add final_op=Id} [4] @d#
    first# = Shape(g#) [1] @d#
    later# = Shape(sent#) [1] @d#
    """
    flow = flow_of(text, gradients={"w": [reduction(0, "sent0 sent1", "all0 all1", "all0 all1")]})
    assert flow.of(Value("first0")) == flow.of(Value("later0")) == 0


def test_the_size_of_a_list_of_rows_is_known_by_its_batch_alone() -> None:
    rows = reduction(0, "g0 g1", "sum0 sum1", "sum0 sum1", Gathered.VALUES)
    flow = flow_of("count# = Shape(g#) [1] @d#", gradients={"w": [rows]})
    assert flow.of(Value("count0")) == FIRST


def test_values_that_are_passed_on_together_follow_each_from_its_own() -> None:
    flow = flow_of("all# = IdentityN(g#, other, sum#) [4] [4] [4] @d#")
    assert [flow.of(Value("all1", number)) for number in range(3)] == [SECOND, 0, WEIGHT]


def test_what_is_of_a_replicas_own_leaves_where_it_meets_anothers() -> None:
    text = "met = AddN(g0, other, sum0, g1) [4]\nagain = Mul(met, g1) [4]"
    found = [(op.name, slot, str(value), copy) for op, slot, value, copy in flow_of(text).leaving()]
    assert found == [("met", 0, "g0", 0), ("met", 3, "g1", 1), ("again", 1, "g1", 1)]


def test_what_a_program_of_all_replicas_returns_leaves_it() -> None:
    view = view_of(
        "x = Placeholder() [4]\nz = Placeholder() [4]\n"
        "out = TPUReplicatedOutput(x) [4] [4]\nkept = TPUReplicatedOutput(z) [4]\n"
        "after = Square(out:1) [4]"
    )
    flow = BatchFlow(view, [[Value("x")]], {}, [])
    assert [(op.name, copy) for op, _, _, copy in flow.leaving()] == [("out", 0)]
    # Each replica's is a value of its own from there on.
    assert flow.of(Value("out", 1)) == flow.of(Value("after")) == 0
