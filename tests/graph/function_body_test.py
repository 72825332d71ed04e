"""A function that an op calls is a graph of its own, whatever a file says of it."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.function_body import ARGUMENT, function_view
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.tensorflow_private import function_graph


def called() -> tuple[Any, str]:
    """A graph with a condition, and the condition's name."""

    @tf.function(input_signature=[tf.TensorSpec((4,))])
    def step(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x / tf.sqrt(x), lambda: x)

    graph_def = step.get_concrete_function().graph.as_graph_def()
    return graph_def, next(node.name for node in graph_def.node if node.op.endswith("If"))


def view_and_op(graph_def: Any, name: str) -> tuple[GraphView, Op]:
    view = GraphView(
        graph_def, variables={}, outputs=(), control_outputs=(), op_def=function_graph.op_def
    )
    return view, view.ops[name]


def test_arguments_are_ops_and_what_is_returned_are_outputs() -> None:
    view, op = view_and_op(*called())
    body = function_view(view, op.node.attr["then_branch"].func.name, op.inputs[1:])
    assert body is not None
    assert [one.type for one in body].count(ARGUMENT) == len(op.inputs) - 1
    assert "RealDiv" in {one.type for one in body}
    assert all(isinstance(value, Value) and value.op in body.ops for value in body.outputs)


def test_one_that_the_library_lacks_or_that_takes_other_operands_is_none() -> None:
    view, op = view_and_op(*called())
    assert function_view(view, "nothing", op.inputs[1:]) is None
    assert function_view(view, op.node.attr["then_branch"].func.name, ()) is None


@pytest.mark.parametrize("text", ["nowhere:z:0", "Sqrt:y:one"])
def test_one_that_reads_what_it_does_not_compute_is_said_to(text: str) -> None:
    graph_def, name = called()
    for function in graph_def.library.function:
        for node in function.node_def:
            if node.op == "RealDiv":
                node.input[1] = text
    view, op = view_and_op(graph_def, name)
    with pytest.raises(WuShardError, match=f"reads '{text}', which it does not have"):
        function_view(view, op.node.attr["then_branch"].func.name, op.inputs[1:])
