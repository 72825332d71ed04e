"""Steps that a strategy really traced, for the tests of the stages that work on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.capture import Captured, capture
from tf_wu_shard.tensorflow_private import function_graph

# What one replica does: from its number to what it returns.
Replica = Callable[[tf.Tensor], Any]


def traced(strategy: tf.distribute.Strategy, body: Replica) -> tf.Graph:
    """The FuncGraph of a step that runs `body` on every replica; nothing is run."""

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            return body(context.replica_id_in_sync_group)

        return strategy.run(replica)

    graph = step.get_concrete_function().graph
    # What is captured is found by weak references.
    graph.keeps = body
    return graph


def captured_step(strategy: tf.distribute.Strategy, body: Replica) -> Captured:
    """The view of a step that runs `body` on every replica."""
    return capture(traced(strategy, body))


def weight_and_slot(
    strategy: tf.distribute.Strategy, shape: tuple[int, ...] = (5, 7)
) -> tuple[tf.Variable, tf.Variable]:
    """A trainable variable and one that an optimizer would keep beside it."""
    with strategy.scope():
        weight = tf.Variable(tf.ones(shape), name="weight")
        slot = tf.Variable(tf.zeros(shape), trainable=False, name="momentum")
    return weight, slot


def momentum_step(
    weight: tf.Variable,
    slot: tf.Variable,
    gradient: Callable[[tf.Tensor], tf.Tensor] | None = None,
    change: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> Replica:
    """One step of momentum.

    Args:
        weight: What is trained.
        slot: Its momentum.
        gradient: From the weight to this replica's gradient; by default the weight itself.
        change: From the reduced gradient to what is added to the momentum; by default itself.
    """

    def replica(number: tf.Tensor) -> tf.Tensor:
        del number
        own = gradient(weight.value()) if gradient else weight * 2.0
        context = tf.distribute.get_replica_context()

        def merged(strategy: tf.distribute.Strategy, value: Any) -> None:
            (total,) = strategy.extended.batch_reduce_to(
                tf.distribute.ReduceOp.SUM, [(value, weight)]
            )
            strategy.extended.update(weight, update, args=(total,), group=False)

        def update(component: tf.Variable, total: tf.Tensor) -> None:
            slot.assign_add(change(total) if change else total)
            component.assign_sub(slot * 0.5)

        context.merge_call(merged, args=(own,))
        return tf.reduce_sum(own)

    return replica


def bare_view(graph_def: Any) -> GraphView:
    """A view of a GraphDef of which nothing but its nodes is known."""
    return GraphView(
        graph_def,
        variables={},
        outputs=(),
        control_outputs=(),
        op_def=function_graph.op_def,
        shape_of=lambda value: None,
    )
