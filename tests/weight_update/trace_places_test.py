"""Ops come in the order of the trace, whatever was written out or put in since."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.weight_update.trace_places import turns_of


def _graph() -> Any:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return tf.identity(tf.identity(x, name="early"), name="late")

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        first = tf.identity(x, name="first")
        called = inner(first)
        return tf.identity(called, name="last")

    return step.get_concrete_function(tf.TensorSpec(())).graph


def test_what_was_written_out_of_a_call_comes_in_the_order_of_its_function() -> None:
    graph = _graph()
    (call,) = (op.name for op in graph.get_operations() if "PartitionedCall" in op.type)
    # In an order that says nothing, beside what took an op's place and what was put in.
    text = f"""
    {call}/late = Const() []
    last = Const() []
    {call}/early = Const() []
    new = Const() []
    first/wu_shard/w/update/read = Const() []
    first = Const() []
    put_in = Identity(first) []
    """
    view = view_of(text)
    turn = turns_of(graph, view, {"new": [f"{call}/late", "first"]})
    turns = {op.name: turn(op) for op in view}
    assert turns["first"] < turns[f"{call}/early"] < turns[f"{call}/late"] < turns["last"]
    assert turns["new"] == turns[f"{call}/late"]
    # What is put in stands beside what is before it, but where its name says what it is made for.
    assert turns["put_in"] == turns["first/wu_shard/w/update/read"] == turns["first"]
    assert turns[f"{call}/early"][:1] == turns[f"{call}/late"][:1]
