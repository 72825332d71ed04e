"""A gradient of open shape has the shape of what it updates, made sure of before it travels."""

from __future__ import annotations

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import MOMENTUM, reasons_of, sharded
from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.gradient_shapes import with_ensured
from tf_wu_shard.step.reductions import EnsuredShape
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis

# A gradient of open shape, and what sums are made with.
WILD = """
axis = Const() {value=0} []
size = Const() {value=2} []
key = Const() {value=1} []
flat = Const() {value=-1} [1]
x# = Placeholder() [4] @d#
wild# = Where(x#) [?] @d#
"""

# What a strategy traces for two gradients, of which one has an open shape.
PACK = f"""{WILD}
fixed# = Square(x#) [4] @d#
wild_flat# = Reshape(wild#, flat) [-1] @d#
fixed_flat# = Reshape(fixed#, flat) [4] @d#
pack# = ConcatV2(wild_flat#, fixed_flat#, axis) [-1] @d#
sum# = CollectiveReduceV2(pack#, size, key) {{merge_op=Add final_op=Id}} [-1] @d#
wild_shape# = Shape(wild#) [-1] @d#
fixed_shape# = Shape(fixed#) [1] @d#
wild_size# = Prod(wild_shape#, axis) [] @d#
fixed_size# = Prod(fixed_shape#, axis) [] @d#
sizes# = Pack(wild_size#, fixed_size#) {{axis=0}} [2] @d#
split# = SplitV(sum#, sizes#, axis) [-1] [-1] @d#
wild_sum# = Reshape(split#, wild_shape#) [?] @d#
fixed_sum# = Reshape(split#:1, fixed_shape#) [4] @d#
"""
STEP_OF_WILD = "stepw# = AssignSubVariableOp(w#, wild_sum#) @d#\n"
STEP_OF_FIXED = "stepv# = AssignSubVariableOp(v#, fixed_sum#) @d#\n"


def analysis(text: str, **variables: tuple[int, ...]) -> Analysis:
    view = view_of(PACK + text, variables=variables, trainable=("w", "v"))
    return analyze(view, DIALECT)


def ensured_in(found: Analysis) -> tuple[EnsuredShape, ...]:
    """The shapes that gradients are made sure to have."""
    return tuple(r.ensured for r in found.reductions if r.ensured is not None)


def test_a_gradient_has_the_shape_of_the_variable_that_is_written_with_it() -> None:
    found = analysis(STEP_OF_WILD + STEP_OF_FIXED, w=(2, 3), v=(4,))
    assert sorted(sharded(found)) == ["v", "w"]
    (ensured,) = ensured_in(found)
    assert (ensured.shape, ensured.variable) == ((2, 3), "w")
    assert ensured.values == (Value("wild0"), Value("wild1"))
    assert [r.size for r in found.reductions] == [6, 4]


def test_a_gradient_that_is_a_pack_of_its_own_has_it_too() -> None:
    text = f"""{WILD}
wild_flat# = Reshape(wild#, flat) [-1] @d#
pack# = Identity(wild_flat#) [-1] @d#
sum# = CollectiveReduceV2(pack#, size, key) {{merge_op=Add final_op=Id}} [-1] @d#
wild_shape# = Shape(wild#) [-1] @d#
wild_size# = Prod(wild_shape#, axis) [] @d#
sizes# = Pack(wild_size#) {{axis=0}} [1] @d#
split# = SplitV(sum#, sizes#, axis) [-1] @d#
wild_sum# = Reshape(split#, wild_shape#) [?] @d#
"""
    view = view_of(text + STEP_OF_WILD, variables={"w": (2, 3)}, trainable=("w",))
    found = analyze(view, DIALECT)
    (ensured,) = ensured_in(found)
    assert (ensured.shape, ensured.variable) == ((2, 3), "w")
    assert ensured.values == (Value("wild0"), Value("wild1"))
    assert sharded(found) == ["w"]


def test_ops_that_keep_the_shape_pass_it_on() -> None:
    text = "half# = Mul(wild_sum#, x0) [?] @d#\nsame# = Identity(half#) [?] @d#\n"
    text = text.replace("x0", "rate") + "step# = AssignSubVariableOp(w#, same#) @d#\n"
    found = analysis("rate = Const() {value=0.5} []\n" + text, w=(2, 3))
    assert sharded(found) == ["w"]


def test_a_slot_tells_the_shape_and_the_weight_the_name() -> None:
    found = analysis(
        MOMENTUM.replace("sum#", "wild_sum#").replace("[4]", "[2,3]"), w=(2, 3), m=(2, 3)
    )
    assert sharded(found) == ["w"]
    assert [e.variable for e in ensured_in(found)] == ["w"]


def test_a_sum_that_is_reshaped_to_a_known_size_has_that_size() -> None:
    text = """
    target = Const() {value=2x3}
    shaped# = Reshape(split#, target) [2,3] @d#
    step# = AssignSubVariableOp(w#, shaped#) @d#
    """
    found = analysis(text, w=(2, 3))
    assert sharded(found) == ["w"]
    (ensured,) = ensured_in(found)
    assert ensured.shape == (6,)
    assert ensured.values == (Value("wild_flat0"), Value("wild_flat1"))


def test_a_dynamic_part_that_updates_nothing_costs_its_neighbours_nothing() -> None:
    found = analysis("seen# = Print(wild_sum#) [?] @d#\n" + STEP_OF_FIXED, v=(4,))
    assert sharded(found) == ["v"]
    assert [r.size for r in found.reductions] == [None, 4]
    assert found.refused == () and ensured_in(found) == ()


def test_two_variables_of_different_shapes_do_not_tell_it() -> None:
    text = STEP_OF_WILD + "stepu# = AssignSubVariableOp(u#, wild_sum#) @d#\n" + STEP_OF_FIXED
    found = analysis(text, w=(2, 3), u=(1, 3), v=(4,))
    assert sharded(found) == ["v"]
    assert "its gradient is known only when the step runs" in reasons_of(found)["w"]


def test_what_may_change_the_shape_does_not_tell_it() -> None:
    text = """
    turned# = Transpose(wild_sum#, axis) [?] @d#
    step# = AssignSubVariableOp(w#, turned#) @d#
    """
    found = analysis(text + STEP_OF_FIXED, w=(2, 3), v=(4,))
    assert sharded(found) == ["v"] and ensured_in(found) == ()


def test_a_known_shape_is_not_overruled() -> None:
    text = PACK.replace("wild# = Where(x#) [?] @d#", "wild# = Where(x#) [5] @d#")
    view = view_of(text + STEP_OF_WILD, variables={"w": (2, 3)})
    assert ensured_in(analyze(view, DIALECT)) == ()


def test_sizes_of_other_tensors_do_not_take_a_pack_apart() -> None:
    wrong = PACK.replace("Prod(wild_shape#, axis)", "Prod(other#, axis)").replace(
        "wild# = Where", "other# = Where(x#) [?] @d#\nwild# = Where"
    )
    wrong = wrong.replace("fixed# = Square(x#) [4]", "fixed# = Where(x#) [?]")
    view = view_of(wrong + STEP_OF_WILD + STEP_OF_FIXED, variables={"w": (2, 3), "v": (4,)})
    assert sharded(analyze(view, DIALECT)) == []


def test_everything_behind_an_ensured_shape_is_known() -> None:
    text = """
    double# = AddV2(wild_sum#, wild_sum#) [?] @d#
    step# = AssignSubVariableOp(w#, double#) @d#
    """
    view = view_of(PACK + text, variables={"w": (2, 3)})
    assert view.shape(Value("double0")) is None
    assert with_ensured(view, ensured_in(analyze(view, DIALECT))).shape(Value("double0")) == (2, 3)
