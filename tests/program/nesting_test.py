"""What graphs do to variables around branches, and what differs between replicas inside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.nesting import Nested, everything, nested_programs, uses
from tf_wu_shard.program.prepare import prepared
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step.capture import Captured, capture
from tf_wu_shard.step.single_program import SingleProgram

Strategies = Callable[[int], tf.distribute.TPUStrategy]
Step = Callable[[tf.Tensor, tf.Tensor, tf.Variable], Any]

FUNCTIONS = {
    "training": ("x w", "put = AssignSubVariableOp(w, x)", ""),
    "reading": ("x w", "value = ReadVariableOp(w)", "value:value:0"),
    "ignoring": ("x w", "", ""),
}


def captured(text: str) -> Captured:
    view = view_of(text, replicas=1, variables={"w": (4,)}, functions=FUNCTIONS, controls=("c",))
    return Captured(view, {})


def branch(op: str, attribute: str) -> Nested:
    empty = captured("c = NoOp()")
    return Nested(op, attribute, 0, "", TracedGraph(None), empty, (), (), (), is_agreed=True)


IF = "p = Const()\nx = Const()\nc = If(p, x, w0) {then_branch=&training else_branch=&%s}\n"


@pytest.mark.parametrize(
    ("other", "found"), [("ignoring", {}), ("reading", {"w": False}), ("training", {"w": False})]
)
def test_a_branch_that_nobody_looks_into_counts_for_the_graph_around(
    other: str, found: dict[str, bool]
) -> None:
    assert uses(captured(IF % other), (branch("c", "then_branch"),)) == found


def test_branches_that_are_looked_into_do_not_count() -> None:
    both = branch("c", "then_branch"), branch("c", "else_branch")
    assert uses(captured(IF % "training"), both) == {}


def test_a_read_around_a_branch_is_only_a_read() -> None:
    text = IF % "ignoring"
    inside = (branch("c", "then_branch"),)
    read = captured(text + "r = ReadVariableOp(w0)\nkept = Print(r)\n")
    assert uses(read, inside) == {"w": True}
    write = captured(text + "r = AssignSubVariableOp(w0, x)\n")
    assert uses(write, inside) == {"w": False}


def innermost(strategy: tf.distribute.TPUStrategy, step: Step) -> GraphView:
    """The view of the branch or body that lies deepest in a step's program."""
    with strategy.scope():
        weight = tf.Variable(tf.ones((8, 4)))
    rows = strategy.experimental_distribute_values_from_function(
        lambda context: tf.fill((8, 4), float(context.replica_id_in_sync_group))
    )

    @tf.function
    def program(own: Any, same: tf.Tensor) -> None:
        strategy.run(lambda own: step(own, same, weight), (own,))

    graph = program.get_concrete_function(rows, tf.constant(np.float32(0.5))).graph
    captured = capture(graph)
    assert captured.cluster is not None
    name = captured.cluster.name
    flat = prepared(TracedGraph(graph), captured, name, 4)
    nested = nested_programs(TracedGraph(graph), flat, name, 4)
    first, _ = next(everything(nested))
    return first.captured.view


def why_apart(view: GraphView) -> Refusal | None:
    """What keeps the assigned value from being the same on every replica, if anything."""
    (write,) = (op for op in view if op.type == "AssignSubVariableOp")
    return SingleProgram(view, {}, 4).match(0, write.name, write.name)


def total(own: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    summed: tf.Tensor = context.all_reduce(tf.distribute.ReduceOp.SUM, own)
    return summed


def in_branch(own: tf.Tensor, same: tf.Tensor, weight: tf.Variable, factor: tf.Tensor) -> None:
    tf.cond(same > 0, lambda: weight.assign_sub(total(own) * factor), lambda: weight.read_value())


def test_a_value_that_all_replicas_share_is_the_same_in_a_branch(emulated: Strategies) -> None:
    view = innermost(emulated(4), lambda own, same, w: in_branch(own, same, w, same))
    assert why_apart(view) is None


def test_a_replicas_own_value_is_its_own_in_a_branch(emulated: Strategies) -> None:
    view = innermost(emulated(4), lambda own, same, w: in_branch(own, same, w, own))
    refusal = why_apart(view)
    assert refusal is not None
    assert refusal.reason == "it may be another value on each replica"
    assert refusal.where in view.own_inputs


def in_loop(own: tf.Tensor, weight: tf.Variable, start: tf.Tensor, more: tf.Tensor) -> None:
    """Two turns, the second with a factor that the first one made."""

    def turn(i: tf.Tensor, factor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        weight.assign_sub(total(own) * factor)
        return i + 1, factor + more

    tf.while_loop(lambda i, _: i < 2, turn, (0, start))


def test_what_a_loop_carries_from_shared_values_is_the_same(emulated: Strategies) -> None:
    view = innermost(emulated(4), lambda own, same, w: in_loop(own, w, same, same * 2))
    assert why_apart(view) is None


def test_what_a_turn_makes_of_a_replicas_own_value_is_its_own(emulated: Strategies) -> None:
    def step(own: tf.Tensor, same: tf.Tensor, weight: tf.Variable) -> None:
        in_loop(own, weight, same, tf.reduce_sum(own))

    view = innermost(emulated(4), step)
    refusal = why_apart(view)
    assert refusal is not None
    assert refusal.where in view.own_inputs


def test_what_differs_outside_differs_in_a_branch_of_a_loop(emulated: Strategies) -> None:
    def step(own: tf.Tensor, same: tf.Tensor, weight: tf.Variable) -> None:
        def turn(i: tf.Tensor, factor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            in_branch(own, same, weight, factor)
            return i + 1, factor * tf.reduce_sum(own)

        tf.while_loop(lambda i, _: i < 2, turn, (0, same))

    assert why_apart(innermost(emulated(4), step)) is not None


def test_no_branch_is_looked_into_in_which_replicas_sum_nothing(emulated: Strategies) -> None:
    def step(own: tf.Tensor, same: tf.Tensor, weight: tf.Variable) -> None:
        tf.cond(same > 0, lambda: weight.assign_sub(own), lambda: weight.read_value())

    with pytest.raises(StopIteration):
        innermost(emulated(4), step)
