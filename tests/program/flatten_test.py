"""Calls that take variables are written out; branches take the values of what they only read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tests.graph.tracing import weight_and_slot
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.flatten import lift, program_of, reaching, write_out
from tf_wu_shard.step.capture import Captured, capture

Strategies = Callable[[int], tf.distribute.MirroredStrategy]
Variables = tuple[tf.Variable, tf.Variable]


@pytest.fixture
def pair(strategy_of: Strategies) -> Variables:
    """A weight and its momentum, (5, 7) each, on two replicas."""
    return weight_and_slot(strategy_of(2))


def flat(step: Callable[..., Any], change: Callable[..., Captured]) -> tuple[Captured, Captured]:
    """A step of an argument (5, 7) as it was traced, and with a change made to all of it."""
    function = tf.function(step, autograph=False, input_signature=[tf.TensorSpec((5, 7))])
    graph = function.get_concrete_function().graph
    captured = capture(graph)
    return captured, change(TracedGraph(graph), captured, "")


def calls(view: GraphView) -> list[str]:
    return [op.type for op in view if "PartitionedCall" in op.type]


def test_a_call_that_takes_a_variable_is_written_out_and_one_of_values_is_not(
    pair: Variables,
) -> None:
    weight, slot = (variable.values[0] for variable in pair)
    squared = tf.function(lambda x: x * x)
    moved = tf.function(lambda x: weight.assign_sub(slot + squared(x)))
    traced, found = flat(lambda x: moved(squared(x)), write_out)
    # What the called function calls comes to the top with it.
    assert [len(calls(traced.view)), len(calls(found.view))] == [2, 2]
    assert not any(op.type == "AssignSubVariableOp" for op in traced.view)
    (write,) = (op for op in found.view if op.type == "AssignSubVariableOp")
    assert found.view.variables[write.inputs[0].op].key == "weight"
    assert found.view.shape(write.inputs[1]) == (5, 7)


def test_where_no_call_matters_the_function_is_the_same_one(pair: Variables) -> None:
    weight = pair[0].values[0]
    squared = tf.function(lambda x: x * x)
    for change in (write_out, lift):
        traced, found = flat(lambda x: weight.assign_sub(squared(x)), change)
        assert found is traced


def test_a_branch_takes_the_value_of_what_it_reads_and_the_handle_of_what_it_writes(
    pair: Variables,
) -> None:
    weight, slot = (variable.values[0] for variable in pair)

    def step(x: tf.Tensor) -> tf.Tensor:
        def taken() -> tf.Tensor:
            return slot.assign_add(weight * x)

        return tf.cond(x[0, 0] > 0.0, taken, lambda: x)

    traced, found = flat(step, lift)
    assert not any(op.type == "ReadVariableOp" for op in traced.view)
    (read,) = (op for op in found.view if op.type == "ReadVariableOp")
    assert found.view.variables[read.inputs[0].op].key == "weight"
    (branch,) = (op for op in found.view if op.type == "If")
    assert read.name in {value.op for value in branch.inputs}
    handles = {value.op for value in branch.inputs} & found.view.variables.keys()
    assert {found.view.variables[handle].key for handle in handles} == {"momentum"}
    assert branch.attribute("then_branch").func.name in found.functions


def test_a_function_reaches_the_ops_of_those_that_it_calls_and_of_itself() -> None:
    view = view_of(
        "x = Placeholder() [4]\n",
        functions={
            "sums": ("a", "s = CrossReplicaSum(a, a) [4]\n", "s"),
            "outer": ("a", "c = PartitionedCall(a) {f=&sums} [4]\n", "c"),
            "again": ("a", "c = PartitionedCall(a) {f=&again} [4]\n", "c"),
        },
    )
    ask = reaching(view, {"CrossReplicaSum"})
    assert [ask(name) for name in ("sums", "outer", "again", "unknown")] == [
        *(True, True),
        *(False, False),
    ]


def test_a_node_of_no_program_names_none() -> None:
    node = tf.compat.v1.NodeDef(name="n", op="NoOp")
    assert program_of(node) == b""
    node.attr["_tpu_replicate"].s = b"cluster"
    assert program_of(node) == b"cluster"
