"""Which part of an update needs whole tensors, where one program runs on all replicas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graph.text_graph import STACKS_DIALECT, view_of
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis, OperandKind, WeightUpdate

# Two gradients [2, 2], each the sum of what two replicas have.
REDUCED = """
all = Const() {value=1x2} []
swap = Const() {value=2} []
axes = Const() {value=3} []
rate = Const() {value=5} []
x = Placeholder() [2,2]
gw = Square(x) [2,2]
gv = Neg(x) [2,2]
sw = CrossReplicaSum(gw, all) [2,2]
sv = CrossReplicaSum(gv, all) [2,2]
"""

# A weight, its momentum, and a step along a matrix function of it.
MOMENTUM = """
put_{0} = AssignAddVariableOp(m{0}0, s{0})
m_{0} = ReadVariableOp(m{0}0) [2,2] ^put_{0}
"""
PRODUCT = """
turned_{0} = Transpose(m_{0}, swap) [2,2]
square_{0} = MatMul(m_{0}, turned_{0}) [2,2]
"""
STEP = """
scaled_{0} = Mul({1}, rate) [2,2]
step_{0} = AssignSubVariableOp({0}0, scaled_{0})
"""
SHAPES: dict[str, tuple[int, ...]] = {key: (2, 2) for key in ("w", "mw", "v", "mv")}


def found(text: str, **keywords: Any) -> Analysis:
    given: dict[str, Any] = {"variables": SHAPES, "trainable": ("w", "v"), "replicas": 1} | keywords
    return analyze(view_of(REDUCED + text, **given), STACKS_DIALECT)


def one(text: str, key: str = "w", **keywords: Any) -> WeightUpdate:
    """The update of w, which has matrix functions."""
    analysis = found(text, **keywords)
    assert [str(r.refusal) for r in analysis.refused if r.variable == key] == []
    (update,) = (u for u in analysis.updates if u.name == key)
    return update


def reason(text: str, **keywords: Any) -> str:
    """Why the update of w is left alone."""
    (refused,) = (r for r in found(text, **keywords).refused if r.variable == "w")
    return str(refused.refusal)


def types(update: WeightUpdate, number: int = 0) -> list[str]:
    return [op.type for op in update.body if op.function == number]


def in_shards(update: WeightUpdate) -> list[str]:
    return [op.type for op in update.body if op.function is None]


def step(key: str, middle: str, result: str) -> str:
    return (MOMENTUM + middle + STEP.replace("{1}", result)).format(key)


def test_what_has_no_rule_is_a_function_between_shards() -> None:
    update = one(step("w", PRODUCT, "square_{0}"))
    assert types(update) == ["Transpose", "MatMul"]
    assert in_shards(update) == [
        *("AssignAddVariableOp", "ReadVariableOp", "Mul", "AssignSubVariableOp"),
    ]
    (function,) = update.functions
    assert (function.first, function.count, function.step, function.outside) == (2, 2, 0, ())
    (entering,), (result,) = function.inputs, function.results
    assert update.body[entering.operand.index].type == "ReadVariableOp"
    assert update.body[result.operand.index].type == "MatMul"
    assert [v.key for v in update.slots] == ["mw"]
    scaled = update.body[4].operands[0]
    assert (scaled.kind, scaled.index) == (OperandKind.BODY, 3)


def test_what_lies_between_two_of_its_ops_belongs_to_it() -> None:
    middle = PRODUCT + (
        "half_{0} = Mul(square_{0}, rate) [2,2]\nagain_{0} = MatMul(half_{0}, turned_{0}) [2,2]\n"
    )
    update = one(step("w", middle, "again_{0}"))
    assert types(update) == ["Transpose", "MatMul", "Mul", "MatMul"]


def test_a_sum_that_serves_nothing_else_belongs_to_it_with_all_on_its_way() -> None:
    middle = """
squares_{0} = Mul(m_{0}, m_{0}) [2,2]
norm_{0} = Sum(squares_{0}, axes) [1,1]
root_{0} = Sqrt(norm_{0}) [1,1]
unit_{0} = RealDiv(m_{0}, root_{0}) [2,2]
square_{0} = MatMul(unit_{0}, unit_{0}) [2,2]
"""
    update = one(step("w", middle, "square_{0}"))
    # The squares would have to be put together besides the momentum.
    assert types(update) == ["Mul", "Sum", "Sqrt", "RealDiv", "MatMul"]
    assert len(update.functions[0].inputs) == 1
    assert not any(op.sum for op in update.body)


def test_a_sum_that_others_look_at_is_one_over_shards() -> None:
    middle = """
norm_{0} = Sum(m_{0}, axes) []
unit_{0} = RealDiv(m_{0}, norm_{0}) [2,2]
square_{0} = MatMul(unit_{0}, unit_{0}) [2,2]
"""
    update = one(step("w", middle, "square_{0}"), outputs=["norm_w"])
    assert types(update) == ["MatMul"]
    assert [op.type for op in update.body if op.sum] == ["Sum"]
    # It needs that sum first.
    assert update.functions[0].step == 1


def test_ops_join_it_that_make_one_tensor_of_two_it_would_yield() -> None:
    middle = PRODUCT + (
        "part_{0} = Mul(turned_{0}, rate) [2,2]\nboth_{0} = AddV2(part_{0}, square_{0}) [2,2]\n"
    )
    update = one(step("w", middle, "both_{0}"))
    assert types(update) == ["Transpose", "MatMul", "Mul", "AddV2"]
    assert len(update.functions[0].results) == 1
    # The scaling of the step makes nothing fewer.
    assert in_shards(update)[-2:] == ["Mul", "AssignSubVariableOp"]


def test_values_of_another_size_stay_inside() -> None:
    middle = """
row_{0} = MatMul(m_{0}, m_{0}) [1,2]
spread_{0} = Mul(m_{0}, row_{0}) [2,2]
"""
    update = one(step("w", middle, "spread_{0}"))
    assert types(update) == ["MatMul", "Mul"]


def test_reshapes_are_part_of_it_where_they_lie_between() -> None:
    middle = """
long_{0} = Reshape(m_{0}, axes) [4,1]
square_{0} = MatMul(long_{0}, m_{0}) [2,2]
flat_{0} = Reshape(square_{0}, axes) [4]
total_{0} = Cumsum(flat_{0}, axes) [4]
back_{0} = Reshape(total_{0}, axes) [2,2]
"""
    update = one(step("w", middle, "back_{0}"))
    assert types(update) == ["Reshape", "MatMul", "Reshape", "Cumsum"]
    # The momentum enters once.
    assert len(update.functions[0].inputs) == len(update.functions[0].results) == 1


def test_a_value_may_enter_it_in_two_shapes() -> None:
    middle = """
long_{0} = Reshape(m_{0}, axes) [4,1]
square_{0} = MatMul(long_{0}, m_{0}) [2,2]
other_{0} = Mul(long_{0}, rate) [4,1]
shaped_{0} = Reshape(other_{0}, axes) [2,2]
sum_{0} = AddV2(square_{0}, shaped_{0}) [2,2]
"""
    update = one(step("w", middle, "sum_{0}"))
    assert types(update) == ["MatMul"]
    assert len(update.functions[0].inputs) == 1
    shapes = [operand.shape for operand in update.body[update.functions[0].first].operands]
    assert shapes == [(4, 1), (2, 2)]


def test_functions_on_both_sides_of_a_variable_are_two() -> None:
    text = """
first = MatMul(sw, sw) [2,2]
put = AssignAddVariableOp(mw0, first)
read = ReadVariableOp(mw0) [2,2] ^put
second = Cumsum(read, axes) [2,2]
step = AssignSubVariableOp(w0, second)
"""
    update = one(text)
    assert [types(update, n) for n in (0, 1)] == [["MatMul"], ["Cumsum"]]
    assert [function.step for function in update.functions] == [0, 1]


def test_equal_programs_have_one_digest_and_others_their_own() -> None:
    def digest(key: str, middle: str, result: str = "square_{0}") -> str:
        return one(step(key, middle, result), key).functions[0].program

    own = digest("w", PRODUCT)
    both = found(step("w", PRODUCT, "square_{0}") + step("v", PRODUCT, "square_{0}"))
    assert [u.functions[0].program for u in both.updates] == [own, own]
    changes = {
        "another attribute": PRODUCT.replace("turned_{0})", "turned_{0}) {{transpose_a=1}}"),
        "another constant": PRODUCT.replace("swap", "axes"),
        "operands the other way": PRODUCT.replace("m_{0}, turned_{0}", "turned_{0}, m_{0}"),
        "another result": PRODUCT + "end_{0} = Cumsum(square_{0}, axes) [2,2]\n",
    }
    for what, middle in changes.items():
        result = "end_{0}" if "end" in middle else "square_{0}"
        assert digest("w", middle, result) != own, what


def test_what_enters_from_outside_is_named_and_constants_are_part_of_the_program() -> None:
    middle = """
read_{0} = ReadVariableOp(count0) [2,2]
warm_{0} = Mul(read_{0}, rate) [2,2]
eye_{0} = Fill(rate, axes) [2,2]
kept_{0} = MatMul(m_{0}, eye_{0}) [2,2]
square_{0} = MatMul(kept_{0}, warm_{0}) [2,2]
"""
    update = one(step("w", middle, "square_{0}"), variables=SHAPES | {"count": (2, 2)})
    assert types(update) == ["Fill", "MatMul", "MatMul"]
    (outside,) = update.functions[0].outside
    assert [str(value) for value in outside.values] == ["warm_w"]


def test_one_function_of_two_gradients_updates_both_weights() -> None:
    text = """
both = MatMul(sw, sv) [2,2]
step = AssignSubVariableOp(w0, both)
other = AssignSubVariableOp(v0, both)
"""
    (update,) = found(text).updates
    assert {v.key for v in update.weights} == {"w", "v"}
    assert [i.operand.kind for i in update.functions[0].inputs] == [OperandKind.GRADIENT] * 2


# A statistic of the weight [2, 2], of another size than it, and a step that it takes part in.
STATISTIC = """
eye = Const() {value=7} [3,3]
row = Const() {value=7} [1,3]
first = MatMul(sw, sw) [3,3]
kept = Mul(first, eye) [3,3]
half = Mul(kept, row) [3,3]
put = AssignAddVariableOp(l0, half)
read = ReadVariableOp(l0) [3,3] ^put
second = MatMul(read, sw) [2,2]
step = AssignSubVariableOp(w0, second)
"""
SIDES = SHAPES | {"l": (3, 3)}


def test_a_slot_may_have_a_size_of_its_own() -> None:
    update = one(STATISTIC, variables=SIDES)
    assert [(v.key, v.shape) for v in update.slots] == [("l", (3, 3))]
    assert [types(update, n) for n in (0, 1)] == [["MatMul"], ["MatMul"]]
    first, second = update.functions
    assert [v.size for v in (*first.inputs, *first.results)] == [4, 9]
    assert sorted(v.size for v in second.inputs) == [4, 9]
    assert [v.size for v in second.results] == [4]


def test_what_is_of_the_slots_size_is_cut_and_broadcast_like_it() -> None:
    update = one(STATISTIC, variables=SIDES)
    whole = [op.operands[1] for op in update.body if op.type == "Mul"]
    kinds = [(operand.kind, operand.shape) for operand in whole]
    assert kinds == [(OperandKind.SLICE, (3, 3)), (OperandKind.BROADCAST, (3, 3))]


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a value that others look at": (
        step("w", PRODUCT, "square_{0}"),
        {"outputs": ["turned_w"]},
        "the step returns a value of the update (turned_w)",
    ),
    "a later result of an op that others look at": (
        step("w", "values_{0} = TopKV2(m_{0}, axes) [2,2] [2,2]\n", "values_{0}"),
        {"outputs": ["values_w:1"]},
        "the step returns a value of the update (values_w)",
    ),
    "random numbers": (
        step("w", "noise_{0} = RandomUniform(m_{0}) [2,2]\n", "noise_{0}"),
        {},
        "no rule for RandomUniform (noise_w)",
    ),
    "a collective of its own": (
        step("w", PRODUCT + "mean_{0} = XlaAllReduce(square_{0}, all) [2,2]\n", "mean_{0}"),
        {},
        "no replica can do a XlaAllReduce for another (mean_w)",
    ),
    "another size than the variable's": (
        "row = MatMul(sw, sw) [1,2]\nstep = AssignSubVariableOp(w0, row)\n",
        {},
        "it writes what is not of the variable's size (step)",
    ),
    "another size than the variable's, but that of a slot": (
        STATISTIC.replace("(w0, second)", "(w0, read)"),
        {"variables": SIDES},
        "it writes a value of shape [3, 3], not the variable's (step)",
    ),
    "weights of two sizes": (
        "both = MatMul(sw, sv) [3,3]\nother = AssignSubVariableOp(v0, both)\n"
        "half = MatMul(both, sw) [2,2]\nstep = AssignSubVariableOp(w0, half)\n",
        {"variables": SHAPES | {"v": (3, 3)}},
        "its weights and gradients are of different sizes (other)",
    ),
    "a gradient of another size than the weight": (
        "wide = MatMul(sw, sw) [3,3]\nstep = AssignSubVariableOp(w0, wide)\n",
        {"variables": {"w": (3, 3)}, "trainable": ("w",)},
        "its weights and gradients are of different sizes (step)",
    ),
    "an element type that nothing exchanges": (
        "sign = Less(sw, rate) {T=10} [2,2]\nplaces = Where(sign) {T=9} [2,2]\n"
        "seen = Cast(places) [2,2]\nstep = AssignSubVariableOp(w0, seen)\n",
        {},
        "no rule for Where; nor can whole tensors be put together for it: no exchange of bool is"
        " known (w)",
    ),
    "no known shape": (
        "odd = MatrixInverse(sw) [?]\nstep = AssignSubVariableOp(w0, odd)\n",
        {},
        "it writes what is not of the variable's size (step)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_split_so_is_left_alone_with_the_reason(case: str) -> None:
    text, keywords, wanted = REFUSED[case]
    assert wanted in reason(text, **keywords)


def test_a_function_that_waits_for_what_is_written_with_its_result_is_left_alone() -> None:
    text = """
first = MatMul(sw, sw) [2,2]
put = AssignAddVariableOp(mw0, first)
read = ReadVariableOp(mw0) [2,2] ^put
second = MatMul(first, read) [2,2]
step = AssignSubVariableOp(w0, second)
"""
    assert reason(text).startswith(
        "no rule for MatMul; nor can whole tensors be put together for it: a matrix function waits"
        " for what is written with its result"
    )
