"""Custom loops with nets of the Keras before 3."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras as k
from tf_keras import layers

from tests.real import data
from tests.real.program import Program, Trained, of, program


@program("tf_keras: an older optimizer in a loop of its own, two tapes, two nets; 29 images by 8")
def keras_two_dcgan(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        generator = k.Sequential(
            [
                layers.Input((32,)),
                layers.Dense(7 * 7 * 16, use_bias=False),
                layers.LeakyReLU(),
                layers.Reshape((7, 7, 16)),
                layers.Conv2DTranspose(32, 5, strides=2, padding="same", use_bias=False),
                layers.LeakyReLU(),
                layers.Conv2D(1, 5, padding="same", activation="tanh"),
            ]
        )
        discriminator = k.Sequential(
            [
                layers.Input((14, 14, 1)),
                layers.Conv2D(32, 5, strides=2, padding="same"),
                layers.LeakyReLU(),
                layers.Conv2D(16, 5, strides=2, padding="same"),
                layers.Flatten(),
                layers.Dense(1),
            ]
        )
        optimizers = [k.optimizers.legacy.Adam(1e-4) for _ in range(2)]
        entropy = k.losses.BinaryCrossentropy(from_logits=True, reduction="none")
    noise = tf.random.Generator.from_seed(3)

    def averaged(wanted: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
        return tf.nn.compute_average_loss(entropy(wanted, given), global_batch_size=8)

    def step(images: tf.Tensor, drawn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as first, tf.GradientTape() as second:
            real = discriminator(images, training=True)
            made = discriminator(generator(drawn, training=True), training=True)
            lost = averaged(tf.ones_like(made), made)
            found = averaged(tf.ones_like(real), real) + averaged(tf.zeros_like(made), made)
        pairs = ((first, lost, generator), (second, found, discriminator))
        for (tape, loss, net), optimizer in zip(pairs, optimizers, strict=True):
            gradients = tape.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return lost, found

    @tf.function
    def train(images: Any, drawn: Any) -> tf.Tensor:
        lost, found = strategy.run(step, (images, drawn))
        return strategy.reduce("SUM", lost, axis=None), strategy.reduce("SUM", found, axis=None)

    images = data.images(29, 14)
    batches = tf.data.Dataset.from_tensor_slices((images, noise.normal((29, 32)))).batch(8)
    seen = [
        number
        for batch in strategy.experimental_distribute_dataset(batches)
        for number in train(*batch)
    ]
    weights = [*generator.trainable_variables, *discriminator.trainable_variables]
    return of(weights, optimizers, seen=seen)


@program(
    "tf_keras: steps in a tf.range over a finite dataset, as its controllers do; 32 images by 8"
)
def keras_two_controller(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = k.Sequential(
            [
                layers.Input((14, 14, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Flatten(),
                layers.Dense(16, activation="relu"),
                layers.Dense(10),
            ]
        )
        optimizer = k.optimizers.SGD(1e-2, momentum=0.9)
        optimizer.build(model.trainable_variables)
        loss_of = k.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        total = k.metrics.Mean()

    def step(inputs: tuple[tf.Tensor, tf.Tensor]) -> None:
        images, labels = inputs
        with tf.GradientTape() as tape:
            each = loss_of(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(each, global_batch_size=8)
        optimizer.minimize(loss, model.trainable_variables, tape=tape)
        total.update_state(loss)

    @tf.function
    def loop(iterator: Any, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            strategy.run(step, args=(next(iterator),))

    rows = (data.images(32, 14), data.labels(32, 10))
    found = tf.data.Dataset.from_tensor_slices(rows).batch(8)
    batches = strategy.experimental_distribute_dataset(found)
    seen = []
    for _ in range(2):
        loop(iter(batches), tf.constant(4))
        seen.append(total.result())
    return of(model.trainable_variables, [optimizer], seen=seen)


@program(
    "tf_keras: gradients are summed together with the words that there are, and divided by them"
)
def keras_two_words_counted(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        words = layers.Input((None,), dtype="int32")
        x = layers.Dense(96, activation="relu")(layers.Embedding(140, 48)(words))
        model = k.Model(words, layers.Dense(140)(x))
        optimizer = k.optimizers.AdamW(1e-3)
        optimizer.build(model.trainable_variables)
        seen_words = tf.Variable(0.0, trainable=False)
    loss_of = k.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def step(batch: tf.Tensor) -> tf.Tensor:
        given, wanted = batch[:, :-1], batch[:, 1:]
        mask = tf.cast(wanted > 0, tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loss_of(wanted, model(given, training=True)) * mask)
        gradients = [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(loss, model.trainable_variables)
        ]
        replica = tf.distribute.get_replica_context()
        gradients, count = replica.all_reduce("SUM", (gradients, tf.reduce_sum(mask)))
        clipped, _ = tf.clip_by_global_norm([g / count for g in gradients], 1.0)
        optimizer.apply_gradients(
            zip(clipped, model.trainable_variables, strict=True), skip_gradients_aggregation=True
        )
        seen_words.assign_add(count)
        return loss / count

    @tf.function
    def train(batch: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, (batch,)), axis=None)

    sequences = data.tokens(21, 4, 20, 140)
    found = tf.data.Dataset.from_generator(
        lambda: iter(sequences), output_signature=tf.TensorSpec((None,), tf.int32)
    )
    batches = strategy.experimental_distribute_dataset(found.padded_batch(8))
    losses = [train(batch) for _ in range(2) for batch in batches]
    left = of(model.trainable_variables, [optimizer], seen=losses)
    return Trained(left.weights, [*left.state, seen_words], left.seen)


PROGRAMS: tuple[Program, ...] = (
    keras_two_dcgan,
    keras_two_controller,
    keras_two_words_counted,
)
