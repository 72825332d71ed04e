"""A view answers from a GraphDef alone: order, edges, liveness, shapes, types."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.tensorflow_private.function_graph import op_def


def test_ops_stand_after_their_inputs_and_control_inputs() -> None:
    view = view_of(
        """
        c = Add(b, a)
        late = NoOp() ^c
        b = Neg(a) ^z
        a = Const()
        z = NoOp()
        """
    )
    position = {op.name: op.position for op in view}
    assert sorted(position.values()) == list(range(5))
    assert max(position["a"], position["z"]) < position["b"] < position["c"] < position["late"]
    assert [op.position for op in view] == list(range(5))


def test_a_graph_in_order_keeps_its_order() -> None:
    view = view_of("a = Const()\nb = Neg(a)\nc = Neg(b)")
    assert list(view.ops) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = Neg(b)\nb = Neg(a)", "cycle"),
        ("a = Neg(a)", "cycle"),
        ("a = Neg(missing)", "'missing', which the graph does not have"),
        ("a = Const()\na = Const()", "two ops are called 'a'"),
        ("a = Neg(b)\na = Const()\nb = Const()", "two ops are called 'a'"),
    ],
)
def test_a_graph_that_does_not_hold_together_is_an_error(text: str, message: str) -> None:
    with pytest.raises(WuShardError, match=message):
        view_of(text)


def test_only_what_can_be_seen_from_outside_is_alive() -> None:
    view = view_of(
        """
        a = Const()
        used = Neg(a)
        unused = Neg(a)
        printed = Neg(a)
        print = Print(printed)
        kept = Neg(a)
        must = NoOp() ^kept
        read = ReadVariableOp(a)
        """,
        outputs=["used"],
        controls=["must"],
    )
    assert view.live == {"a", "used", "printed", "print", "kept", "must"}
    assert [op.name for op, _ in view.consumers(Value("a"))] == ["used", "printed", "kept"]


def test_consumers_are_listed_by_output_with_the_input_they_enter_by() -> None:
    view = view_of("s = SplitV() [2] [3]\na = Sub(s:1, s)\nb = Neg(s:1)", outputs=["a", "b"])
    assert [(op.name, i) for op, i in view.consumers(Value("s", 1))] == [("a", 0), ("b", 0)]
    assert [(op.name, i) for op, i in view.consumers(Value("s"))] == [("a", 1)]
    assert view.producer(Value("s", 1)).type == "SplitV"


def test_a_shape_is_known_only_when_every_dimension_is() -> None:
    view = view_of("a = Split() [2,3] []\nb = Where(a) [?]\nc = Where(a)")
    assert view.shape(Value("a")) == (2, 3)
    assert view.shape(Value("a", 1)) == ()
    assert view.shape(Value("b")) is None
    assert view.shape(Value("c")) is None
    assert view.shape(Value("a", 2)) is None


def test_an_ancestor_runs_earlier_by_data_or_control_edges() -> None:
    view = view_of("a = Const()\nb = Neg(a)\nc = NoOp() ^b\nd = NoOp() ^c\ne = Const()")
    ops = view.ops
    assert view.first_unordered([ops["a"]], ops["d"]) is None
    assert view.first_unordered([ops["d"]], ops["a"]) is not None
    assert view.first_unordered([ops["e"]], ops["d"]) is not None
    assert view.first_unordered([ops["a"]], ops["a"]) is not None


def test_a_read_has_no_effect_and_a_write_has() -> None:
    view = view_of("h = VarHandleOp()\nr = ReadVariableOp(h)\nw = AssignVariableOp(h, r)")
    assert view.effects == {"w"}
    assert view.is_stateful("ReadVariableOp")


def test_ops_of_some_types_come_in_their_order() -> None:
    view = view_of("a = Const()\nb = Neg(a)\nc = Const()\nd = Exp(c)\ne = Neg(d)")
    assert [op.name for op in view.of_types("Const")] == ["a", "c"]
    assert [op.name for op in view.of_types("Neg", "Const", "Neg")] == ["a", "b", "c", "e"]
    assert view.of_types("Add") == view.of_types() == []


def test_equal_graphs_have_equal_fingerprints() -> None:
    first, same, other = (view_of(t) for t in ("a = Const()", "a = Const()", "b = Const()"))
    assert first.fingerprint == same.fingerprint != other.fingerprint


def test_only_a_const_has_a_constant() -> None:
    view = view_of("a = Const() {value=7}\nb = Neg(a)")
    tensor = view.constant(Value("a"))
    assert tensor is not None and tensor.int_val == [7]
    assert view.constant(Value("b")) is None


def test_what_a_view_reads_leaves_the_graph_as_it_was() -> None:
    """A file need not say what a graph traced here says: no shapes, no attribute at its default."""
    graph_def = tf.compat.v1.GraphDef()
    for name, op_type, inputs in [
        ("c", "Const", ()),
        ("whole", "Reshape", ("c", "c")),
        ("sum", "Sum", ("whole", "c")),
        ("part", "StridedSlice", ("whole", "c", "c", "c")),
        ("packed", "Pack", ("sum", "part")),
        ("ensured", "EnsureShape", ("sum",)),
        ("squeezed", "Squeeze", ("packed",)),
        ("product", "MatMul", ("whole", "squeezed")),
        ("bias", "BiasAddGrad", ("product",)),
    ]:
        graph_def.node.add(name=name, op=op_type, input=inputs)
    before = graph_def.SerializeToString(deterministic=True)
    view = GraphView(graph_def, variables={}, outputs=(), control_outputs=(), op_def=op_def)
    for op in view:
        view.shape(Value(op.name))
        view.constant(Value(op.name))
        view.results(op.name)
    assert graph_def.SerializeToString(deterministic=True) == before
