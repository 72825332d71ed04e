"""Calls that take variables are written out; branches take the values of what they only read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tests.graph.tracing import weight_and_slot
from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.compiled_calls import compiled_in
from tf_wu_shard.program.flatten import lift, reaching, write_out, write_out_updates
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
    return [op.type for op in calls_of(view)]


def calls_of(view: GraphView) -> list[Op]:
    return [op for op in view if "PartitionedCall" in op.type]


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


def applying(function: Callable[..., Any], *, jit_compile: bool) -> tuple[Captured, Captured]:
    """A step of a sum, here a negation, that a function applies, and with that written out."""
    apply = tf.function(function, autograph=False, jit_compile=jit_compile)

    def change(graph: TracedGraph, captured: Captured, program: str) -> Captured:
        (summed,) = (op for op in captured.view if op.type == "Neg")
        carried = CarriedReduction(summed.inputs, (Value(summed.name),), 1, (summed.name,))
        return write_out_updates(graph, captured, lambda view: [carried], set())

    return flat(lambda x: apply(-x), change)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_call_that_applies_a_sum_is_written_out_and_says_if_it_was_compiled(
    pair: Variables, jit_compile: bool
) -> None:
    weight, slot = (variable.values[0] for variable in pair)

    def apply(gradient: tf.Tensor) -> None:
        weight.assign_sub(slot.assign(0.9 * slot + gradient))

    traced, found = applying(apply, jit_compile=jit_compile)
    (call,) = calls_of(traced.view)
    assert not calls(found.view) and not found.kept_branches
    assert found.written_out == {call.attribute("f").func.name}
    added = [op for op in found.view if op.name not in traced.view.ops and op.type != "NoOp"]
    assert {op.type for op in added} >= {"AssignSubVariableOp", "AssignVariableOp", "Mul"}
    assert {compiled_in(op.node) for op in added} == {call.name if jit_compile else ""}


def test_a_compiled_call_of_more_than_arithmetic_stays_and_is_told_why(pair: Variables) -> None:
    weight = pair[0].values[0]
    traced, found = applying(lambda g: weight.assign_sub(g / tf.norm(g)), jit_compile=True)
    (call,) = calls_of(traced.view)
    assert [op.name for op in found.view] == [op.name for op in traced.view]
    assert found.kept_branches[call.name].kind is refusals.Calls.COMPILED_WITH


def test_a_compiled_function_within_another_is_asked_as_well(pair: Variables) -> None:
    weight = pair[0].values[0]
    inner = tf.function(lambda g: weight.assign_sub(g / tf.norm(g)), jit_compile=True)
    _, found = applying(lambda g: inner(g * 2.0), jit_compile=False)
    (call,) = calls_of(found.view)
    assert found.kept_branches[call.name].kind is refusals.Calls.COMPILED_WITH
    assert len(found.written_out) == 1


def test_whatever_is_called_with_a_slot_in_shards_is_written_out(pair: Variables) -> None:
    weight, slot = (variable.values[0] for variable in pair)
    apply = tf.function(lambda x: weight.assign_sub(slot.assign_add(x)))

    def change(graph: TracedGraph, captured: Captured, program: str) -> Captured:
        return write_out_updates(graph, captured, lambda view: [], {"momentum"})

    traced, found = flat(lambda x: apply(-x), change)
    assert calls(traced.view) and not calls(found.view)


def test_a_call_that_takes_no_sum_stays_a_call(pair: Variables) -> None:
    weight = pair[0].values[0]
    apply = tf.function(lambda x: weight.assign_sub(x))

    def change(graph: TracedGraph, captured: Captured, program: str) -> Captured:
        return write_out_updates(graph, captured, lambda view: [], set())

    traced, found = flat(lambda x: apply(-x), change)
    assert found.view is traced.view
