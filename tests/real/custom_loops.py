"""The loops of tensorflow.org's guides to distributed training, over finite data."""

from __future__ import annotations

from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.attention import Encoder, Positions
from tests.real.program import MIRRORED, Program, Trained, of, program

BATCH = 8


def _model() -> k.Model:
    return k.Sequential(
        [
            k.Input((14, 14, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def _dataset(count: int) -> tf.data.Dataset:
    rows = (data.images(count, 14), data.labels(count, 10))
    return tf.data.Dataset.from_tensor_slices(rows).batch(BATCH)


class Loop:
    """A model, its optimizer and its metrics, and a step of one replica."""

    def __init__(self, strategy: tf.distribute.Strategy, optimizer: Any, built: bool) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.model, self.optimizer = _model(), optimizer()
            self.loss_of = k.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="none"
            )
            self.accuracy = k.metrics.SparseCategoricalAccuracy()
            self.tested = k.metrics.Mean()
            if built:
                self.optimizer.build(self.model.trainable_variables)

    def average(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        each = self.loss_of(labels, logits)
        return tf.nn.compute_average_loss(each, global_batch_size=BATCH)

    def train_step(self, inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        images, labels = inputs
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            loss = self.average(labels, logits)
        weights = self.model.trainable_variables
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.accuracy.update_state(labels, logits)
        return loss

    def test_step(self, inputs: tuple[tf.Tensor, tf.Tensor]) -> None:
        images, labels = inputs
        self.tested.update_state(self.loss_of(labels, self.model(images, training=False)))

    def summed(self, step: Any, inputs: Any) -> tf.Tensor:
        return self.strategy.reduce("SUM", self.strategy.run(step, (inputs,)), axis=None)

    def left(self, *seen: Any) -> Trained:
        numbers = [*seen, self.accuracy.result(), self.tested.result()]
        return of(self.model.trainable_variables, [self.optimizer], seen=numbers)


@program("a traced step for each batch of a distributed dataset, and a tested one; 43 images by 8")
def loop_over_dataset(strategy: tf.distribute.Strategy) -> Trained:
    loop = Loop(strategy, lambda: k.optimizers.Adam(1e-3), built=True)

    @tf.function
    def train(inputs: Any) -> tf.Tensor:
        return loop.summed(loop.train_step, inputs)

    @tf.function
    def test(inputs: Any) -> None:
        strategy.run(loop.test_step, args=(inputs,))

    training = strategy.experimental_distribute_dataset(_dataset(43))
    testing = strategy.experimental_distribute_dataset(_dataset(13))
    losses = []
    for _ in range(2):
        losses += [train(batch) for batch in training]
        for batch in testing:
            test(batch)
    return loop.left(*losses)


@program("an iterator and a fixed number of steps, each handed its batch; repeated, 43 images by 8")
def loop_by_iterator(strategy: tf.distribute.Strategy) -> Trained:
    loop = Loop(strategy, lambda: k.optimizers.SGD(1e-2, momentum=0.9), built=True)

    @tf.function
    def train(inputs: Any) -> tf.Tensor:
        return loop.summed(loop.train_step, inputs)

    iterator = iter(strategy.experimental_distribute_dataset(_dataset(43).repeat()))
    return loop.left(*(train(next(iterator)) for _ in range(9)))


@program("a whole epoch in one tf.function: for batch in dataset; 43 images by 8")
def epoch_in_function(strategy: tf.distribute.Strategy) -> Trained:
    loop = Loop(strategy, lambda: k.optimizers.Adam(1e-3), built=True)

    @tf.function
    def epoch(batches: Any) -> tf.Tensor:
        total, count = 0.0, 0
        for batch in batches:
            total += loop.summed(loop.train_step, batch)
            count += 1
        return total / tf.cast(count, tf.float32)

    batches = strategy.experimental_distribute_dataset(_dataset(43))
    return loop.left(*(epoch(batches) for _ in range(2)))


@program("steps in a tf.range inside of the function, each takes next(iterator); 40 images by 8")
def steps_in_function(strategy: tf.distribute.Strategy) -> Trained:
    loop = Loop(strategy, lambda: k.optimizers.AdamW(1e-3), built=True)

    @tf.function
    def steps(iterator: Any, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            strategy.run(loop.train_step, args=(next(iterator),))

    batches = strategy.experimental_distribute_dataset(_dataset(40))
    for _ in range(2):
        steps(iter(batches), tf.constant(5))
    return loop.left()


@program(
    "the optimizer makes its slots inside of the first traced step; iterator in the function",
    refused={MIRRORED: "a MirroredStrategy cannot make variables inside of a traced step"},
)
def slots_in_first_step(strategy: tf.distribute.Strategy) -> Trained:
    loop = Loop(strategy, lambda: k.optimizers.Adam(1e-3), built=False)

    @tf.function
    def train(iterator: Any) -> None:
        strategy.run(loop.train_step, args=(next(iterator),))

    per_replica = BATCH // strategy.num_replicas_in_sync

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        size = context.get_per_replica_batch_size(BATCH)
        assert size == per_replica
        return _dataset(44).unbatch().repeat().batch(size)

    iterator = iter(strategy.distribute_datasets_from_function(batches))
    for _ in range(4):
        train(iterator)

    @tf.function
    def several(iterator: Any, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            strategy.run(loop.train_step, args=(next(iterator),))

    several(iterator, tf.constant(3))
    return loop.left()


@program(
    "a Transformer in a loop of its own; padded_batch of 22 by 8, the mean over words that are"
)
def loop_over_padded(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((None,), dtype="int32")
        x = Encoder(64, 4, 64)(Positions(24, 130, 64)(inputs))
        model = k.Model(inputs, layers.Dense(130)(x))
        optimizer = k.optimizers.Adam(1e-3, global_clipnorm=1.0)
        optimizer.build(model.trainable_variables)
        loss_of = k.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    sequences = data.tokens(22, 4, 20, 130)

    def examples() -> Any:
        yield from sequences

    found = tf.data.Dataset.from_generator(
        examples, output_signature=tf.TensorSpec((None,), tf.int32)
    )

    @tf.function
    def train(batch: Any) -> tf.Tensor:
        def step(words: tf.Tensor) -> tf.Tensor:
            given, wanted = words[:, :-1], words[:, 1:]
            with tf.GradientTape() as tape:
                mask = tf.cast(wanted > 0, tf.float32)
                lost = tf.reduce_sum(loss_of(wanted, model(given, training=True)) * mask)
                replica = tf.distribute.get_replica_context()
                count = replica.all_reduce("SUM", tf.reduce_sum(mask))
                loss = lost / tf.maximum(count, 1.0)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(step, (batch,)), axis=None)

    batches = strategy.experimental_distribute_dataset(found.padded_batch(BATCH))
    losses = [train(batch) for _ in range(2) for batch in batches]
    return of(model.trainable_variables, [optimizer], seen=losses)


@program("tf.Module and tf.Variables, momentum by hand in tf.Variables; 29 rows by 8")
def module_by_hand(strategy: tf.distribute.Strategy) -> Trained:
    random = np.random.default_rng(3)

    def variable(*shape: int, trainable: bool = True) -> tf.Variable:
        start = random.standard_normal(shape).astype(np.float32) * 0.1 * trainable
        return tf.Variable(start, trainable=trainable)

    with strategy.scope():
        weights = [variable(96, 96), variable(96), variable(96, 64), variable(64)]
        slots = [variable(*w.shape, trainable=False) for w in weights]

    def step(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.tensordot(rows, weights[0], 1) + weights[1])
            given = tf.reduce_mean(tf.tensordot(hidden, weights[2], 1) + weights[3], axis=1)
            loss = tf.reduce_sum((given - wanted) ** 2) / (BATCH * 64)
        gradients = tape.gradient(loss, weights)
        replica = tf.distribute.get_replica_context()
        for weight, slot, gradient in zip(
            weights, slots, replica.all_reduce("SUM", gradients), strict=True
        ):
            slot.assign(0.9 * slot + gradient)
            weight.assign_sub(0.01 * slot)
        return loss

    @tf.function
    def train(rows: Any, wanted: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, (rows, wanted)), axis=None)

    rows = data.rows(29 * 5, 96).reshape(29, 5, 96)
    found = tf.data.Dataset.from_tensor_slices((rows, rows.mean(axis=1)[:, :64])).batch(BATCH)
    losses = [train(*batch) for batch in strategy.experimental_distribute_dataset(found)]
    return Trained(weights, slots, losses)


PROGRAMS: tuple[Program, ...] = (
    loop_over_dataset,
    loop_by_iterator,
    epoch_in_function,
    steps_in_function,
    slots_in_first_step,
    loop_over_padded,
    module_by_hand,
)
