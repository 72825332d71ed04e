"""Generative models: an autoencoder, critics, a diffusion; `train_step` is their own."""

from __future__ import annotations

from typing import Any

import keras as k
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.program import Program, Trained, of, program


class Sampling(layers.Layer):
    """Draws from a normal distribution given by its mean and the logarithm of its variance."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = k.random.SeedGenerator(1337)

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        mean, log_variance = inputs
        shape = k.ops.shape(mean)
        noise = k.random.normal((shape[0], shape[1]), seed=self.seeds)
        return mean + k.ops.exp(0.5 * log_variance) * noise


class Vae(k.Model):
    """An autoencoder that counts its losses itself."""

    def __init__(self) -> None:
        super().__init__()
        inputs = k.Input((16, 16, 1))
        x = layers.Conv2D(16, 3, activation="relu", strides=2, padding="same")(inputs)
        x = layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(x)
        x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
        mean, log_variance = layers.Dense(2)(x), layers.Dense(2)(x)
        drawn = Sampling()((mean, log_variance))
        self.encoder = k.Model(inputs, [mean, log_variance, drawn])
        latent = k.Input((2,))
        x = layers.Dense(16, activation="relu")(latent)
        x = layers.Reshape((4, 4, 32))(layers.Dense(4 * 4 * 32, activation="relu")(x))
        x = layers.Conv2DTranspose(64, 3, activation="relu", strides=2, padding="same")(x)
        x = layers.Conv2DTranspose(32, 3, activation="relu", strides=2, padding="same")(x)
        x = layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x)
        self.decoder = k.Model(latent, x)
        self.total = k.metrics.Mean("total")
        self.divergence = k.metrics.Mean("divergence")

    @property
    def metrics(self) -> list[Any]:
        return [self.total, self.divergence]

    def call(self, images: tf.Tensor) -> tf.Tensor:
        return self.decoder(self.encoder(images)[2])

    def train_step(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            mean, log_variance, drawn = self.encoder(images)
            again = self.decoder(drawn)
            each = k.ops.sum(k.losses.binary_crossentropy(images, again), axis=(1, 2))
            divergence = -0.5 * (1 + log_variance - mean**2 - k.ops.exp(log_variance))
            divergence = k.ops.mean(k.ops.sum(divergence, axis=1))
            total = k.ops.mean(each) + divergence
        gradients = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total.update_state(total)
        self.divergence.update_state(divergence)
        return {metric.name: metric.result() for metric in self.metrics}


@program("train_step is its own; noise of shape(mean); 43 images in batches of 16, no labels")
def vae(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = Vae()
        model.compile(k.optimizers.Adam())
    history = model.fit(data.images(43, 16), epochs=2, batch_size=16, verbose=0)
    weights = [*model.encoder.trainable_weights, *model.decoder.trainable_weights]
    return of(weights, [model.optimizer], seen=[history])


def _discriminator() -> k.Sequential:
    return k.Sequential(
        [
            k.Input((16, 16, 1)),
            layers.Conv2D(32, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(32, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )


def _generator(latent: int) -> k.Sequential:
    return k.Sequential(
        [
            k.Input((latent,)),
            layers.Dense(4 * 4 * 32),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Reshape((4, 4, 32)),
            layers.Conv2DTranspose(32, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(32, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(1, 5, padding="same", activation="sigmoid"),
        ]
    )


class Gan(k.Model):
    """Two nets, each with an optimizer of its own, in one step."""

    def __init__(self, latent: int = 16) -> None:
        super().__init__()
        self.latent = latent
        self.discriminator, self.generator = _discriminator(), _generator(latent)
        self.seeds = k.random.SeedGenerator(7)

    def compile(self, first: Any, second: Any, loss: Any) -> None:
        super().compile()
        self.of_discriminator, self.of_generator, self.judge = first, second, loss
        self.lost = [k.metrics.Mean("discriminated"), k.metrics.Mean("generated")]

    def call(self, images: tf.Tensor) -> tf.Tensor:
        return self.discriminator(images)

    def noise(self, images: tf.Tensor) -> tf.Tensor:
        return k.random.normal((k.ops.shape(images)[0], self.latent), seed=self.seeds)

    def train_step(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        count = k.ops.shape(images)[0]
        both = k.ops.concatenate([self.generator(self.noise(images)), images], axis=0)
        labels = k.ops.concatenate([k.ops.ones((count, 1)), k.ops.zeros((count, 1))], axis=0)
        labels += 0.05 * k.random.uniform(k.ops.shape(labels), seed=self.seeds)
        with tf.GradientTape() as tape:
            first = self.judge(labels, self.discriminator(both, training=True))
        weights = self.discriminator.trainable_weights
        gradients = tape.gradient(first, weights)
        self.of_discriminator.apply_gradients(zip(gradients, weights, strict=True))
        with tf.GradientTape() as tape:
            made = self.generator(self.noise(images))
            second = self.judge(k.ops.zeros((count, 1)), self.discriminator(made))
        weights = self.generator.trainable_weights
        gradients = tape.gradient(second, weights)
        self.of_generator.apply_gradients(zip(gradients, weights, strict=True))
        for metric, value in zip(self.lost, (first, second), strict=True):
            metric.update_state(value)
        return {metric.name: metric.result() for metric in self.lost}

    def left(self, *seen: Any) -> Trained:
        weights = [*self.discriminator.trainable_weights, *self.generator.trainable_weights]
        return of(weights, [self.of_discriminator, self.of_generator], seen=seen)


@program("two nets and two optimizers in one train_step; tf.data of 37 images in batches of 8")
def gan(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = Gan()
        first, second = k.optimizers.Adam(3e-4), k.optimizers.Adam(3e-4)
        loss = k.losses.BinaryCrossentropy(from_logits=True, reduction="sum_over_batch_size")
        model.compile(first, second, loss)
        # Their slots cannot be made inside the step under a MirroredStrategy.
        first.build(model.discriminator.trainable_weights)
        second.build(model.generator.trainable_weights)
    found = tf.data.Dataset.from_tensor_slices(data.images(37, 16)).shuffle(37, seed=3).batch(8)
    return model.left(model.fit(found, epochs=1, verbose=0))


class Wgan(Gan):
    """The critic takes several steps for each of the generator's, with a gradient penalty."""

    turns = 3

    def penalty(self, real: tf.Tensor, made: tf.Tensor) -> tf.Tensor:
        share = k.random.uniform((k.ops.shape(real)[0], 1, 1, 1), seed=self.seeds)
        between = real + share * (made - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            said = self.discriminator(between, training=True)
        gradients = tape.gradient(said, [between])[0]
        norm = k.ops.sqrt(k.ops.sum(gradients**2, axis=[1, 2, 3]) + 1e-12)
        return k.ops.mean((norm - 1.0) ** 2)

    def train_step(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        weights = self.discriminator.trainable_weights
        for _ in range(self.turns):
            made = self.generator(self.noise(images), training=True)
            with tf.GradientTape() as tape:
                first = k.ops.mean(self.discriminator(made, training=True))
                first -= k.ops.mean(self.discriminator(images, training=True))
                first += 10.0 * self.penalty(images, made)
            gradients = tape.gradient(first, weights)
            self.of_discriminator.apply_gradients(zip(gradients, weights, strict=True))
        weights = self.generator.trainable_weights
        with tf.GradientTape() as tape:
            made = self.generator(self.noise(images), training=True)
            second = -k.ops.mean(self.discriminator(made, training=True))
        gradients = tape.gradient(second, weights)
        self.of_generator.apply_gradients(zip(gradients, weights, strict=True))
        for metric, value in zip(self.lost, (first, second), strict=True):
            metric.update_state(value)
        return {metric.name: metric.result() for metric in self.lost}


@program("the critic updated three times in a step, with a gradient penalty; 27 images by 8")
def wgan_gp(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = Wgan()
        first = k.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9)
        second = k.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9)
        model.compile(first, second, k.losses.MeanSquaredError())
        first.build(model.discriminator.trainable_weights)
        second.build(model.generator.trainable_weights)
    return model.left(model.fit(data.images(27, 16), batch_size=8, epochs=1, verbose=0))


class CycleGan(k.Model):
    """Two generators and two discriminators, the gradients of all from one persistent tape."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = (self._translator() for _ in range(2))
        self.first, self.second = _discriminator(), _discriminator()
        self.nets = (self.there, self.back, self.first, self.second)

    def _translator(self) -> k.Sequential:
        shapes = {"padding": "same", "activation": "relu"}
        inner = [layers.Conv2D(32, 3, **shapes), layers.Conv2DTranspose(32, 4, 2, **shapes)]
        return k.Sequential(
            [
                k.Input((16, 16, 1)),
                layers.Conv2D(16, 4, 2, **shapes),
                *inner,
                layers.Conv2D(1, 3, padding="same", activation="tanh"),
            ]
        )

    def compile(self, optimizers: list[Any]) -> None:
        super().compile()
        self.optimizers = optimizers
        for optimizer, net in zip(optimizers, self.nets, strict=True):
            optimizer.build(net.trainable_variables)

    def call(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.there(images), self.back(images)

    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        one, other = batch
        with tf.GradientTape(persistent=True) as tape:
            made_other, made_one = self.there(one), self.back(other)
            cycle = k.ops.mean(k.ops.abs(one - self.back(made_other)))
            cycle += k.ops.mean(k.ops.abs(other - self.there(made_one)))
            lost_there = k.ops.mean((self.second(made_other) - 1) ** 2) + 10 * cycle
            lost_back = k.ops.mean((self.first(made_one) - 1) ** 2) + 10 * cycle
            lost_first = k.ops.mean((self.first(one) - 1) ** 2 + self.first(made_one) ** 2)
            lost_second = k.ops.mean((self.second(other) - 1) ** 2 + self.second(made_other) ** 2)
        losses = (lost_there, lost_back, lost_first, lost_second)
        for loss, net, optimizer in zip(losses, self.nets, self.optimizers, strict=True):
            gradients = tape.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return {"there": lost_there, "back": lost_back, "first": lost_first}


@program(
    "four nets and four optimizers on one persistent tape; pairs of sets of 14 in batches of 4"
)
def cycle_gan(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = CycleGan()
        model.compile([k.optimizers.Adam(2e-4, beta_1=0.5) for _ in range(4)])
    sides = [tf.data.Dataset.from_tensor_slices(data.images(14 + i, 16)) for i in range(2)]
    found = tf.data.Dataset.zip(tuple(side.batch(4) for side in sides))
    history = model.fit(found, epochs=1, verbose=0)
    weights = [v for net in model.nets for v in net.trainable_variables]
    return of(weights, model.optimizers, seen=[history])


class Diffusion(k.Model):
    """Predicts noise; keeps a moving average of its net and a normalizer of its images."""

    def __init__(self) -> None:
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network, self.average = self._net(), self._net()
        self.average.set_weights(self.network.get_weights())
        self.average.trainable = False
        self.seeds = k.random.SeedGenerator(5)
        self.lost = k.metrics.Mean("noise_loss")

    def _net(self) -> k.Model:
        noisy, variance = k.Input((16, 16, 1)), k.Input((1, 1, 1))
        spread = layers.UpSampling2D(16)(variance)
        x = layers.Conv2D(32, 1)(layers.Concatenate()([noisy, spread]))
        first = x = layers.Conv2D(32, 3, padding="same", activation="swish")(x)
        x = layers.Conv2D(64, 3, padding="same", activation="swish")(layers.AveragePooling2D(2)(x))
        x = layers.Concatenate()([layers.UpSampling2D(2)(x), first])
        x = layers.Conv2D(32, 3, padding="same", activation="swish")(x)
        return k.Model([noisy, variance], layers.Conv2D(1, 1, kernel_initializer="zeros")(x))

    @property
    def metrics(self) -> list[Any]:
        return [self.lost]

    def call(self, images: tf.Tensor) -> tf.Tensor:
        variance = k.ops.zeros((k.ops.shape(images)[0], 1, 1, 1))
        return self.network([self.normalizer(images), variance])

    def train_step(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        images = self.normalizer(images, training=True)
        noise = k.random.normal(k.ops.shape(images), seed=self.seeds)
        times = k.random.uniform((k.ops.shape(images)[0], 1, 1, 1), seed=self.seeds)
        rates = k.ops.sin(times)
        noisy = k.ops.sqrt(1 - rates**2) * images + rates * noise
        with tf.GradientTape() as tape:
            given = self.network([noisy, rates**2], training=True)
            loss = k.ops.mean(k.losses.mean_absolute_error(noise, given))
        gradients = tape.gradient(loss, self.network.trainable_weights)
        pairs = zip(gradients, self.network.trainable_weights, strict=True)
        self.optimizer.apply_gradients(pairs)
        self.lost.update_state(loss)
        for weight, average in zip(self.network.weights, self.average.weights, strict=True):
            average.assign(0.99 * average + 0.01 * weight)
        return {metric.name: metric.result() for metric in self.metrics}


@program("the step writes a moving average of every weight; 21 images in batches of 8")
def diffusion(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = Diffusion()
        model.compile(k.optimizers.AdamW(1e-3, weight_decay=1e-4))
    images = data.images(21, 16)
    model.normalizer.adapt(images)
    history = model.fit(images, batch_size=8, epochs=2, verbose=0)
    weights = model.network.trainable_weights
    return of(weights, [model.optimizer], model.average.weights, seen=[history])


PROGRAMS: tuple[Program, ...] = (vae, gan, wgan_gp, cycle_gan, diffusion)
