"""A value has the shape that its file states, or else its variable's or its argument's."""

from __future__ import annotations

import tensorflow as tf

from tests.graph.tracing import bare_view
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.inspection.reading.shapes import Shapes


def shapes() -> Shapes:
    """Of a graph that states some."""
    graph_def = tf.compat.v1.GraphDef()
    for name, op, inputs in (
        ("w", "VarHandleOp", ()),
        ("read", "ReadVariableOp", ("w",)),
        ("stated", "ReadVariableOp", ("w",)),
        ("x", "Placeholder", ()),
        ("untold", "Placeholder", ()),
        ("call", "StatefulPartitionedCall", ()),
        ("split", "Split", ()),
    ):
        graph_def.node.add(name=name, op=op, input=inputs)
    nodes = {node.name: node for node in graph_def.node}
    dims = tf.TensorShape
    nodes["x"].attr["shape"].shape.CopyFrom(dims([None, 8]).as_proto())
    nodes["stated"].attr["_output_shapes"].list.shape.append(dims([2, 2]).as_proto())
    nodes["call"].attr["output_shapes"].list.shape.append(dims([3]).as_proto())
    nodes["split"].attr["output_shapes"].list.shape.append(dims([3]).as_proto())
    found = Shapes()
    assert found.of(Value("read")) is None
    ref = VariableRef("weight", 0, 1, (4, 5), 1, True, "")
    found.read(bare_view(graph_def), {"w": ref})
    return found


def test_what_the_file_states_goes_before_what_a_variable_has() -> None:
    assert shapes().of(Value("stated")) == (2, 2)
    assert shapes().of(Value("read")) == (4, 5)


def test_an_argument_has_its_own_shape_open_dimensions_being_none() -> None:
    assert shapes().of(Value("x")) == (None, 8)
    assert shapes().of(Value("untold")) is None


def test_a_call_states_its_results_and_no_more_than_it_has() -> None:
    assert shapes().of(Value("call")) == (3,)
    assert shapes().of(Value("call", 1)) is None
    assert shapes().of(Value("split")) is None  # that attribute means something of calls alone
    assert shapes().of(Value("nowhere")) is None
