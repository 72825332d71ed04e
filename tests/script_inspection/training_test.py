"""What trains is told from what sets, initialises or averages weights."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tf_wu_shard.script_inspection.training import trains

BATCH = tf.TensorSpec((4, 8))


class Weights(tf.Module):
    """A layer without a bias, a copy of it, and what may be done to them."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.zeros((8, 8)), name="w")
        self.copy = tf.Variable(tf.zeros((8, 8)), name="copy")
        self.count = tf.Variable(0.0, trainable=False, name="count")

    def gradient(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ self.w) ** 2)
        return tape.gradient(loss, self.w)


def graph_of(function: Any, *signature: Any) -> Any:
    return tf.function(function).get_concrete_function(*signature).graph


def test_a_step_trains_by_any_way_of_writing() -> None:
    own = Weights()
    assert trains(graph_of(lambda x: own.w.assign_sub(own.gradient(x)), BATCH))
    assert trains(graph_of(lambda x: own.w.assign(own.w - own.gradient(x)), BATCH))
    adam = keras.optimizers.Adam()
    adam.build([own.w])
    assert trains(graph_of(lambda x: adam.apply([own.gradient(x)], [own.w]), BATCH))

    def fused(x: Any) -> None:
        gradient = own.gradient(x)
        tf.raw_ops.ResourceApplyGradientDescent(var=own.w.handle, alpha=0.1, delta=gradient)

    assert trains(graph_of(fused, BATCH))


def test_a_function_that_only_applies_gradients_trains() -> None:
    own = Weights()
    gradient = tf.TensorSpec((8, 8))
    assert trains(graph_of(lambda g: own.w.assign_sub(0.1 * g), gradient))
    kept = tf.Variable(tf.zeros((8, 8)), trainable=False)
    assert trains(graph_of(lambda: own.w.assign(own.w - 0.1 * kept)))
    inner = tf.function(lambda: own.w.assign_sub(0.1 * kept))
    assert trains(graph_of(lambda: inner() + 0.0))
    assert not trains(graph_of(lambda x: kept.assign_add(own.gradient(x)), BATCH))


def test_a_step_trains_through_calls_branches_and_loops() -> None:
    own = Weights()
    step = tf.function(lambda x: own.w.assign_sub(own.gradient(x)) + 0.0)
    assert trains(graph_of(lambda x: step(step(x[:, :8] @ tf.zeros((8, 8)))), BATCH))

    def loop(x: Any) -> Any:
        return tf.while_loop(lambda i: i < 3, lambda i: [i + tf.cast(step(x)[0, 0], i.dtype)], [0])

    assert trains(graph_of(loop, BATCH))
    assert trains(
        graph_of(lambda x: tf.cond(x[0, 0] > 0, lambda: step(x), lambda: tf.zeros((8, 8))), BATCH)
    )


def test_the_batch_may_come_out_of_an_iterator() -> None:
    own = Weights()
    batches = tf.data.Dataset.from_tensors(tf.zeros((4, 8)))
    iterator = iter(batches)
    assert trains(graph_of(lambda: own.w.assign_sub(own.gradient(next(iterator)))))


def test_what_sets_initialises_averages_or_counts_does_not_train() -> None:
    own = Weights()
    whole, number = tf.TensorSpec((8, 8)), tf.TensorSpec(())
    assert not trains(graph_of(lambda value: own.w.assign(value), whole))
    kept = tf.Variable(tf.zeros((8, 8)), trainable=False)
    assert not trains(graph_of(lambda: own.w.assign(kept)))
    assert not trains(graph_of(lambda: own.w.assign(tf.random.normal((8, 8)))))
    assert not trains(
        graph_of(lambda tau: own.copy.assign(tau * own.w + (1.0 - tau) * own.copy), number)
    )
    assert not trains(graph_of(lambda x: own.count.assign_add(tf.reduce_sum(x @ own.w)), BATCH))
    assert not trains(graph_of(lambda x: own.gradient(x), BATCH))
