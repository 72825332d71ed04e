"""Functions of a file are made into others, which can be read as those of the file are."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.inspection.reading.checked_nodes import function_body
from tf_wu_shard.inspection.reading.defined_graph import Definitions
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
    made = called.remade(body, [])
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
