"""Functions of a file are made into others, which can be read as those of the file are."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.inspection.reading.aliased_handles import by_one_operand
from tf_wu_shard.inspection.reading.checked_nodes import function_body
from tf_wu_shard.inspection.reading.defined_graph import DefinedGraph, Definitions
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.tensorflow_private import function_graph

_RESOURCE = tf.TensorSpec([], tf.resource)


def reading_and_writing(one: Any, other: Any) -> Any:
    """Reads a variable by one argument and writes it by another."""
    read = tf.raw_ops.ReadVariableOp(resource=one, dtype=tf.float32)
    tf.raw_ops.AssignVariableOp(resource=other, value=tf.zeros((4,)))
    first, second = tf.split(read, 2)
    return second - first


def source(function: Any) -> tuple[str, Definitions]:
    """A traced function's name, and the functions of a file that has it."""
    graph = tf.function(function, input_signature=[_RESOURCE, _RESOURCE])
    definition = graph.get_concrete_function().function_def
    name = definition.signature.name
    return name, Definitions({name: definition}, function_graph.op_def)


def test_a_function_made_of_the_same_nodes_reads_the_same() -> None:
    name, definitions = source(reading_and_writing)
    called = definitions.find(name)
    assert called is not None and definitions.find("no_such") is None
    body = called.body()
    made = called.remade(body.nodes, [f"{v.op}:{v.index}" for v in body.results], [])
    again = function_body(made.definition, function_graph.op_def)
    assert again.arguments == body.arguments and again.results == body.results
    assert set(again.control_outputs) == set(body.control_outputs)
    inputs = {node.name: list(node.input) for node in body.nodes}
    assert {node.name: list(node.input) for node in again.nodes} == inputs
    assert made.name.decode() != name and called.inner(made.name.decode(), {}) is None
    assert called.inner(made.name.decode(), {made.name.decode(): made}) is made.graph


def test_an_op_says_how_many_results_it_has() -> None:
    name, definitions = source(reading_and_writing)
    called = definitions.find(name)
    assert called is not None
    (split,) = (node.name for node in called.body().nodes if node.op == "Split")
    assert called.num_results(split) == 2
    assert len(called.body(0).results) == 0 and len(called.body().results) == 1


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
