"""Nets side by side: images with texts, triplets, users with items."""

from __future__ import annotations

from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.program import Program, Trained, after, of, program


def _projection(x: tf.Tensor, width: int) -> tf.Tensor:
    first = layers.Dense(width)(x)
    x = layers.Dropout(0.1)(layers.Dense(width)(layers.Activation("gelu")(first)))
    return layers.LayerNormalization()(layers.Add()([first, x]))


class DualEncoder(k.Model):
    """An image and its text are to be near each other, and far from all others of the batch."""

    def __init__(self) -> None:
        super().__init__()
        image = k.Input((24, 24, 3))
        x = layers.Conv2D(32, 3, strides=2, activation="relu")(image)
        x = layers.GlobalAveragePooling2D()(layers.Conv2D(64, 3, activation="relu")(x))
        self.images = k.Model(image, _projection(x, 64))
        text = k.Input((None,), dtype="int32")
        x = layers.GRU(64)(layers.Embedding(120, 64, mask_zero=True)(text))
        self.texts = k.Model(text, _projection(x, 64))
        self.lost = k.metrics.Mean("loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.lost]

    def call(self, features: dict[str, tf.Tensor], training: bool = False) -> Any:
        image = self.images(features["image"], training=training)
        return image, self.texts(features["text"], training=training)

    def _loss(self, images: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        logits = k.ops.matmul(texts, k.ops.transpose(images)) / 0.05
        alike = k.ops.matmul(images, k.ops.transpose(images))
        alike += k.ops.matmul(texts, k.ops.transpose(texts))
        targets = k.ops.softmax(alike / 0.1)
        one = k.losses.categorical_crossentropy(targets, logits, from_logits=True)
        turned = (k.ops.transpose(targets), k.ops.transpose(logits))
        return (one + k.losses.categorical_crossentropy(*turned, from_logits=True)) / 2

    def train_step(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = k.ops.mean(self._loss(*self(features, training=True)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.lost.update_state(loss)
        return {"loss": self.lost.result()}


@program("logits of shape [batch, batch] in train_step; 23 pairs of images and texts by 8")
def dual_encoder(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = DualEncoder()
        model.compile(k.optimizers.AdamW(1e-3, weight_decay=1e-3))
    texts = data.padded(data.tokens(23, 3, 9, 120), 9)
    found = tf.data.Dataset.from_tensor_slices({"image": data.images(23, 24, 3), "text": texts})
    history = model.fit(found.batch(8), epochs=2, verbose=0)
    return after(model, seen=[history])


class SimClr(k.Model):
    """Two views of each image; what is taught is their likeness, in the labels' absence."""

    def __init__(self) -> None:
        super().__init__()
        self.augmenter = k.Sequential(
            [layers.RandomTranslation(0.2, 0.2, seed=3), layers.RandomFlip(seed=4)]
        )
        self.encoder = k.Sequential(
            [
                layers.Conv2D(32, 3, strides=2, activation="relu"),
                layers.Conv2D(64, 3, strides=2, activation="relu"),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
            ]
        )
        self.head = k.Sequential([layers.Dense(64, activation="relu"), layers.Dense(64)])
        self.probe = layers.Dense(10)

    def compile(self, contrastive: Any, probe: Any) -> None:
        super().compile()
        self.contrastive, self.probing = contrastive, probe
        self.probe_loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)

    def call(self, images: tf.Tensor) -> tf.Tensor:
        features = self.encoder(self.augmenter(images))
        self.probe(features)
        return self.head(features)

    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        images, labels = batch
        with tf.GradientTape() as tape:
            views = [self(images) for _ in range(2)]
            one, other = (k.ops.normalize(view, axis=1) for view in views)
            likeness = k.ops.matmul(one, k.ops.transpose(other)) / 0.1
            own = k.ops.arange(k.ops.shape(images)[0])
            loss = k.losses.sparse_categorical_crossentropy(own, likeness, from_logits=True)
            loss = k.ops.mean(loss)
        weights = [*self.encoder.trainable_weights, *self.head.trainable_weights]
        self.contrastive.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            guessed = self.probe(k.ops.stop_gradient(self.encoder(images)))
            probing = self.probe_loss(labels, guessed)
        weights = self.probe.trainable_weights
        self.probing.apply_gradients(zip(tape.gradient(probing, weights), weights, strict=True))
        return {"contrastive": loss, "probing": probing}


@program("places in the batch as labels, arange(shape(x)[0]); a probe with an optimizer of its own")
def simclr(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = SimClr()
        model.compile(k.optimizers.Adam(1e-3), k.optimizers.Adam(1e-3))
        model(np.zeros((1, 24, 24, 1), np.float32))
        for optimizer, nets in (
            (model.contrastive, (model.encoder, model.head)),
            (model.probing, (model.probe,)),
        ):
            optimizer.build([v for net in nets for v in net.trainable_variables])
    found = tf.data.Dataset.from_tensor_slices((data.images(20, 24), data.labels(20, 10)))
    history = model.fit(found.batch(8), epochs=2, verbose=0)
    return of(model.trainable_weights, [model.contrastive, model.probing], seen=[history])


class Distances(layers.Layer):
    """Squared distances of an anchor to what is like it and to what is not."""

    def call(self, anchor: tf.Tensor, near: tf.Tensor, far: tf.Tensor) -> tf.Tensor:
        apart = [k.ops.sum((anchor - other) ** 2, axis=-1) for other in (near, far)]
        return k.ops.stack(apart, axis=-1)


class TripletLoss(k.losses.Loss):
    """How much nearer than a margin the unlike one is; the labels say nothing."""

    def call(self, _: tf.Tensor, distances: tf.Tensor) -> tf.Tensor:
        return k.ops.maximum(distances[:, 0] - distances[:, 1] + 0.5, 0.0)


@program("one net under three inputs, some of its layers frozen; 23 triplets in batches of 8")
def siamese(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        image = k.Input((20, 20, 3))
        frozen = layers.Conv2D(16, 3, strides=2, activation="relu", trainable=False)
        x = layers.Conv2D(64, 3, strides=2, activation="relu")(frozen(image))
        x = layers.Dense(128, activation="relu")(layers.GlobalAveragePooling2D()(x))
        embedding = k.Model(image, layers.Dense(64)(layers.BatchNormalization()(x)))
        three = [k.Input((20, 20, 3), name=name) for name in ("anchor", "near", "far")]
        model = k.Model(three, Distances()(*(embedding(one) for one in three)))
        model.compile(k.optimizers.Adam(1e-4), TripletLoss())
    views = [data.images(23 + i, 20, 3)[:23] for i in range(3)]
    history = model.fit(views, np.zeros((23, 1)), batch_size=8, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("numbers hashed into rows of a table inside the model; 45 of them in batches of 16")
def hashed_recommender(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        user = k.Input((), dtype="int64", name="user")
        item = k.Input((), dtype="int64", name="item")
        towers = []
        for given, bins in ((user, 256), (item, 192)):
            x = layers.Embedding(bins, 32)(layers.Hashing(bins)(given))
            x = layers.Dense(128, activation="relu")(x)
            towers.append(layers.Dense(32)(x))
        rating = layers.Dense(64, activation="relu")(layers.Concatenate()(towers))
        model = k.Model([user, item], layers.Dense(1)(rating))
        model.compile(k.optimizers.Adagrad(0.1), "mse", metrics=["mae"])
    random = np.random.default_rng(12)
    ids = {name: random.integers(0, 10**9, 45) for name in ("user", "item")}
    history = model.fit(ids, random.random(45), batch_size=16, epochs=2, verbose=0)
    return after(model, seen=[history])


class Retrieval(k.Model):
    """Two towers of lookups; the other items of a batch are what a user did not choose."""

    def __init__(self, names: dict[str, list[str]]) -> None:
        super().__init__()
        self.towers = {
            name: k.Sequential([layers.Embedding(len(known) + 1, 64), layers.Dense(64)])
            for name, known in names.items()
        }

    def call(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        users, items = (self.towers[name](batch[name]) for name in ("user", "item"))
        return k.ops.matmul(users, k.ops.transpose(items))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> tf.Tensor:
        each = k.losses.categorical_crossentropy(
            k.ops.eye(k.ops.shape(y_pred)[0]), y_pred, from_logits=True
        )
        return k.ops.sum(each)


@program("names looked up in tf.data, the other items of a batch as negatives; 39 by 16")
def retrieval(strategy: tf.distribute.Strategy) -> Trained:
    names = {"user": [f"user {i}" for i in range(90)], "item": [f"item {i}" for i in range(70)]}
    with strategy.scope():
        model = Retrieval(names)
        model.compile(k.optimizers.Adagrad(0.5))
    lookups = {name: layers.StringLookup(vocabulary=known) for name, known in names.items()}
    random = np.random.default_rng(14)
    seen = {name: random.choice(known, 39) for name, known in names.items()}
    found = tf.data.Dataset.from_tensor_slices(seen).map(
        lambda row: {name: lookups[name](row[name]) for name in row}
    )
    history = model.fit(found.batch(16), epochs=2, verbose=0)
    return after(model, seen=[history])


class Ratings(k.Model):
    """A dot product of two embeddings and biases, subclassed."""

    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        options = {
            "embeddings_initializer": "he_normal",
            "embeddings_regularizer": k.regularizers.l2(1e-6),
        }
        self.users, self.items = (layers.Embedding(n, 64, **options) for n in (users, items))
        self.user_bias, self.item_bias = (layers.Embedding(n, 1) for n in (users, items))

    def call(self, pairs: tf.Tensor) -> tf.Tensor:
        user, item = self.users(pairs[:, 0]), self.items(pairs[:, 1])
        likes = k.ops.sum(user * item, axis=1, keepdims=True)
        likes += self.user_bias(pairs[:, 0]) + self.item_bias(pairs[:, 1])
        return k.ops.sigmoid(likes)


@program("tables that are regularized, looked up by columns of one input; 52 pairs by 16")
def collaborative_filtering(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = Ratings(128, 96)
        model.compile(k.optimizers.Adam(1e-3), k.losses.BinaryCrossentropy())
    random = np.random.default_rng(15)
    pairs = np.stack([random.integers(0, 128, 52), random.integers(0, 96, 52)], 1)
    history = model.fit(pairs, random.random(52), batch_size=16, epochs=2, verbose=0)
    return after(model, seen=[history])


PROGRAMS: tuple[Program, ...] = (
    dual_encoder,
    simclr,
    siamese,
    hashed_recommender,
    retrieval,
    collaborative_filtering,
)
