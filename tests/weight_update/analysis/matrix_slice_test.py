"""A slice with matrix functions has each as one run of ops between what is done on shards."""

from __future__ import annotations

from tests.graph.text_graph import STACKS_DIALECT, view_of
from tests.weight_update.analysis.matrix_updates_test import PRODUCT, REDUCED, step
from tf_wu_shard.graph.op import Value
from tf_wu_shard.placement import Sharded, Whole
from tf_wu_shard.refusals import Matrices
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.weight_update.analysis.matrix_slice import MatrixSlice
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph

MATRIX = (2, 2)


def slice_of(
    text: str, slot: tuple[int, ...] = MATRIX, keys: tuple[int, ...] = (0,)
) -> MatrixSlice:
    """The slice from the writes of the weight and its slot, not placed yet."""
    shapes = {"w": MATRIX, "mw": slot}
    view = view_of(REDUCED + text, replicas=1, variables=shapes)
    carried, _ = STACKS_DIALECT.recognise(view)
    graph = ReducedGraph.of(view, gradient_reductions(view, carried), STACKS_DIALECT.replicas)
    touching = {key: [values_of(view, f"{key}0")] for key in shapes}
    return MatrixSlice(graph, keys, {key: t for key, t in touching.items() if t[0].own_writes}, ())


def placed(text: str, slot: tuple[int, ...] = MATRIX) -> MatrixSlice:
    found = slice_of(text, slot)
    refusal = found.place()
    assert refusal is None, str(refusal)
    return found


def names(found: MatrixSlice) -> list[str]:
    return [op.name for op in found.body]


def test_the_ops_of_a_function_follow_each_other_wherever_they_stood() -> None:
    # Its second op stands behind another update of the slot's value.
    text = step("w", PRODUCT, "square_{0}").replace(
        "square_w =", "other_w = Mul(m_w, rate) [2,2]\nsquare_w ="
    )
    found = placed(text.replace("Mul(square_w, rate)", "Mul(square_w, other_w)"))
    assert found.functions == (frozenset({"turned_w", "square_w"}),)
    assert found.function_of == {"turned_w": 0, "square_w": 0}
    own = names(found)
    first = own.index("turned_w")
    assert own[first : first + 2] == ["turned_w", "square_w"]
    assert {*own} == {
        *("put_w", "m_w", "other_w", "turned_w", "square_w", "scaled_w", "step_w"),
    }
    assert own.index("m_w") < first and own.index("square_w") < own.index("scaled_w")


def test_parts_that_read_nothing_of_each_other_are_functions_of_their_own() -> None:
    text = """
one = MatMul(sw, sw) [2,2]
put = AssignAddVariableOp(mw0, one)
two = MatMul(sw, rate) [2,2]
step = AssignSubVariableOp(w0, two)
"""
    found = placed(text)
    assert found.functions == (frozenset({"one"}), frozenset({"two"}))
    assert found.function_of == {"one": 0, "two": 1}


def test_what_has_a_variables_size_is_cut_and_what_has_another_stays_inside() -> None:
    text = """
side = MatMul(sw, sw) [3,3]
put = AssignAddVariableOp(mw0, side)
row = MatMul(sw, axes) [1,2]
back = MatMul(row, sw) [2,2]
step = AssignSubVariableOp(w0, back)
"""
    found = placed(text, (3, 3))
    assert (found.size, found.sizes) == (4, {4, 9})
    assert found.placements[Value("side")] == Sharded((3, 3))
    assert found.placements[Value("back")] == Sharded((2, 2))
    assert found.placements[Value("row")] == Whole()
    ops = {op.name: op for op in found.body}
    sizes = {name: found.size_at(ops[name]) for name in ("put", "step", "row", "back")}
    assert sizes == {"put": 9, "step": 4, "row": 2, "back": 4}


def test_a_value_that_is_handed_through_is_known_by_its_origin() -> None:
    text = """
square = MatMul(sw, sw) [2,2]
both = IdentityN(sw, square) [2,2] [2,2]
step = AssignSubVariableOp(w0, both:1)
"""
    found = placed(text)
    assert found.origin(Value("both", 1)) == Value("square")
    # A gradient has a name of its own there.
    assert found.origin(Value("both")) == Value("both")
    assert found.functions == (frozenset({"square"}),)


def test_what_no_order_or_no_other_replica_can_do_is_refused() -> None:
    waiting = """
first = MatMul(sw, sw) [2,2]
put = AssignAddVariableOp(mw0, first)
read = ReadVariableOp(mw0) [2,2] ^put
second = MatMul(first, read) [2,2]
step = AssignSubVariableOp(w0, second)
"""
    assert slice_of(waiting).place() == Matrices.WAITS_FOR_WRITES.at("first")
    own = "noise = RandomUniform(sw) [2,2]\nstep = AssignSubVariableOp(w0, noise)\n"
    refusal = slice_of(own).place()
    assert refusal == Matrices.NOT_FOR_ANOTHER.at("noise", op_type="RandomUniform")
    called = "c = PartitionedCall(sw) {f=&gone} [2,2]\nstep = AssignSubVariableOp(w0, c)\n"
    unknown = slice_of(called).place()
    assert unknown == Matrices.NOT_FOR_ANOTHER.at("c", op_type="PartitionedCall")


def test_weights_and_gradients_are_of_one_size() -> None:
    text = "step = AssignSubVariableOp(w0, sw)\nput = AssignAddVariableOp(mw0, sw)\n"
    # The slot alone may be of another size; what is written to it may not.
    refusal = slice_of(text, (3, 3)).place()
    assert refusal is not None and refusal.where == "put"
    wide = "wide = Placeholder() [3,3]\nsum = CrossReplicaSum(wide, all) [3,3]\n"
    of_both = slice_of(wide + "step = AssignSubVariableOp(w0, sum)\n", keys=(0, 2))
    assert of_both.place() == Matrices.WEIGHTS_OF_DIFFERENT_SIZES.at("step")
