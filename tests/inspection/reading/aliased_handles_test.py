"""A variable that a function takes by several arguments is taken by one of them."""

from __future__ import annotations

import tensorflow as tf

from tests.inspection.reading.defined_graph_test import reading_and_writing, source
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.inspection.reading.aliased_handles import by_one_operand, in_traced_order
from tf_wu_shard.inspection.reading.defined_graph import DefinedGraph
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.tensorflow_private import function_graph


def test_a_variable_that_is_handed_twice_is_taken_by_the_first_operand() -> None:
    name, definitions = source(reading_and_writing)
    graph_def = tf.compat.v1.GraphDef()
    handle = graph_def.node.add(name="w", op="Placeholder")
    handle.attr["dtype"].type = tf.resource.as_datatype_enum
    call = graph_def.node.add(name="call", op="StatefulPartitionedCall", input=["w", "w"])
    call.attr["f"].func.name = name
    call.attr["Tin"].list.type.extend([tf.resource.as_datatype_enum] * 2)
    call.attr["Tout"].list.type.append(tf.float32.as_datatype_enum)
    ref = VariableRef("w", 0, 1, (4,), tf.float32.as_datatype_enum, True, "")
    view = GraphView(
        graph_def,
        variables={"w": ref},
        outputs=[Value("call")],
        control_outputs=["call"],
        op_def=function_graph.op_def,
    )
    graph = DefinedGraph(definitions, None, Body((), (), (), ()))
    found = by_one_operand(graph, Captured(view, {"w": ref}))
    (made,) = found.functions.values()
    assert found.view.ops["call"].node.attr["f"].func.name == made.name.decode()
    assert [value.op for value in found.view.ops["call"].inputs] == ["w", "call/unused"]
    nodes = {node.op: node for node in made.graph.body().nodes}
    read, write = nodes["ReadVariableOp"], nodes["AssignVariableOp"]
    assert read.input[0] == write.input[0] == made.graph.body().arguments[0]
    # In the order in which they were traced.
    assert f"^{read.name}" in write.input


def test_a_graph_that_hands_nothing_twice_stays() -> None:
    _, definitions = source(reading_and_writing)
    view = GraphView(
        tf.compat.v1.GraphDef(),
        variables={},
        outputs=(),
        control_outputs=(),
        op_def=function_graph.op_def,
    )
    captured = Captured(view, {})
    assert (
        by_one_operand(DefinedGraph(definitions, None, Body((), (), (), ())), captured) is captured
    )


def test_accesses_of_one_variable_wait_for_each_other_and_for_no_other() -> None:
    graph_def = tf.compat.v1.GraphDef()
    for name, handle in (("a", "w"), ("b", "w2"), ("c", "m"), ("d", "w")):
        graph_def.node.add(name=name, op="ReadVariableOp", input=[handle])
    ordered = in_traced_order(graph_def.node, {"w": "weight", "w2": "weight"})
    assert [list(node.input) for node in ordered] == [["w"], ["w2", "^a"], ["m"], ["w", "^b"]]
    # What the file says stays.
    assert list(graph_def.node[1].input) == ["w2"]
