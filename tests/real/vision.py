"""Vision beyond classes: patches, maps of any size, boxes, text in images."""

from __future__ import annotations

from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.attention import Encoder
from tests.real.classifiers import Patches
from tests.real.program import Program, Trained, after, program


class PatchEncoder(layers.Layer):
    """Projects patches and adds where they are."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.patches = patches
        self.projection = layers.Dense(width)
        self.places = layers.Embedding(patches, width)

    def call(self, patches: tf.Tensor) -> tf.Tensor:
        places = k.ops.expand_dims(k.ops.arange(self.patches), 0)
        return self.projection(patches) + self.places(places)


class ClassToken(layers.Layer):
    """Puts a learnt token before the patches of as many images as there are."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.token = self.add_weight(shape=(1, 1, shape[-1]), initializer="uniform")

    def call(self, patches: tf.Tensor) -> tf.Tensor:
        batch, _, width = k.ops.shape(patches)
        return k.ops.concatenate([k.ops.broadcast_to(self.token, (batch, 1, width)), patches], 1)


@program("augmentation in the model, a token broadcast to shape(x)[0]; 29 images in batches of 8")
def vision_transformer(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        augmentation = k.Sequential(
            [layers.RandomFlip("horizontal", seed=1), layers.RandomZoom(0.1, seed=2)]
        )
        inputs = k.Input((32, 32, 3))
        x = PatchEncoder(16, 64)(Patches(8)(augmentation(inputs)))
        x = ClassToken()(x)
        for _ in range(2):
            x = Encoder(64, 4, 128)(x)
        x = layers.LayerNormalization()(x)[:, 0]
        x = layers.Dropout(0.5)(layers.Dense(64, activation="gelu")(x))
        model = k.Model(inputs, layers.Dense(12)(x))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.AdamW(1e-3, weight_decay=1e-4), loss, metrics=["accuracy"])
    images, wanted = data.images(37, 32, 3), data.labels(37, 12)
    history = model.fit(images, wanted, batch_size=8, epochs=1, validation_split=0.2, verbose=0)
    return after(model, seen=[history])


def _unet() -> k.Model:
    inputs = k.Input((None, None, 3))
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(inputs)
    before = x
    for width in (32, 64):
        x = layers.SeparableConv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        kept = layers.Conv2D(width, 1, strides=2, padding="same")(before)
        x = before = layers.add([x, kept])
    for width in (64, 32):
        x = layers.Conv2DTranspose(width, 3, padding="same", activation="relu")(x)
        x = layers.UpSampling2D(2)(x)
        kept = layers.Conv2D(width, 1, padding="same")(layers.UpSampling2D(2)(before))
        x = before = layers.add([x, kept])
    x = layers.UpSampling2D(2)(x)
    return k.Model(inputs, layers.Conv2D(3, 3, activation="softmax", padding="same")(x))


@program("images of any size: each batch has another, and another number of them")
def unet(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = _unet()
        model.compile(k.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")

    def batches() -> Any:
        for count, size in ((4, 32), (7, 16), (8, 24)):
            images = data.images(count, size, 3)
            yield images, (images[..., :1] * 2.99).astype(np.int32)

    signature = (
        tf.TensorSpec((None, None, None, 3), tf.float32),
        tf.TensorSpec((None, None, None, 1), tf.int32),
    )
    found = tf.data.Dataset.from_generator(batches, output_signature=signature)
    found = found.apply(tf.data.experimental.assert_cardinality(3))
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


class Head(layers.Layer):
    """Predicts for each place of each map and lists them: reshaped to (shape(x)[0], -1, n)."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.inner = layers.Conv2D(32, 3, padding="same", activation="relu")
        self.last = layers.Conv2D(2 * outputs, 3, padding="same")

    def call(self, maps: list[tf.Tensor]) -> tf.Tensor:
        found = []
        for one in maps:
            x = self.last(self.inner(one))
            found.append(k.ops.reshape(x, (k.ops.shape(x)[0], -1, self.outputs)))
        return k.ops.concatenate(found, axis=1)


class Detector(k.Model):
    """Two maps of a small backbone, one on top of the other, and heads that both of them share."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = layers.Conv2D(16, 3, strides=4, padding="same", activation="relu")
        self.deeper = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")
        self.deepest = layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")
        self.lateral = [layers.Conv2D(32, 1) for _ in range(2)]
        self.up = layers.UpSampling2D(2)
        self.boxes, self.classes = Head(4), Head(classes)

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        fine = self.deeper(self.stem(images))
        coarse = self.deepest(fine)
        top = self.lateral[1](coarse)
        maps = [self.lateral[0](fine) + self.up(top), top]
        return k.ops.concatenate([self.boxes(maps), self.classes(maps)], axis=-1)


class DetectionLoss(k.losses.Loss):
    """Smooth L1 of boxes where there are some, focal loss of classes."""

    def call(self, wanted: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
        boxes, classes = given[..., :4], given[..., 4:]
        labels = k.ops.cast(wanted[..., 4], "int32")
        positive = k.ops.cast(labels > 0, "float32")
        apart = k.ops.abs(boxes - wanted[..., :4])
        smooth = k.ops.where(apart < 1, 0.5 * apart**2, apart - 0.5)
        box = k.ops.sum(k.ops.sum(smooth, -1) * positive, -1)
        hot = k.ops.one_hot(labels, k.ops.shape(classes)[-1])
        focal = k.ops.binary_crossentropy(hot, k.ops.sigmoid(classes))
        each = k.ops.sum(k.ops.sum(focal, -1), -1)
        return (box + each) / k.ops.maximum(1.0, k.ops.sum(positive, -1))


@program("padded_batch of 14 images of unequal sizes by 4; boxes listed by (shape(x)[0], -1, 4)")
def detection(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = Detector(5)
        model.compile(k.optimizers.SGD(1e-3, momentum=0.9), DetectionLoss())
    random = np.random.default_rng(8)
    sizes = [16 * int(size) for size in random.integers(2, 4, 14)]

    def examples() -> Any:
        for size in sizes:
            anchors = 2 * ((size // 8) ** 2 + (size // 16) ** 2)
            wanted = random.random((anchors, 5), dtype=np.float32)
            wanted[:, 4] = np.floor(wanted[:, 4] * 5)
            yield data.images(1, size, 3)[0], wanted

    # Maps of a padded image have more places than boxes were made for: they get no object.
    def fit_to_maps(images: tf.Tensor, boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = tf.shape(images)[1]
        places = 2 * ((size // 8) ** 2 + (size // 16) ** 2)
        return images, tf.pad(boxes, ((0, 0), (0, places - tf.shape(boxes)[1]), (0, 0)))

    signature = (tf.TensorSpec((None, None, 3)), tf.TensorSpec((None, 5)))
    found = tf.data.Dataset.from_generator(examples, output_signature=signature)
    found = found.apply(tf.data.experimental.assert_cardinality(len(sizes)))
    history = model.fit(found.padded_batch(4).map(fit_to_maps), epochs=1, verbose=0)
    return after(model, seen=[history])


class Ctc(layers.Layer):
    """Adds the CTC loss of a batch, its lengths asked for when the step runs."""

    def call(self, labels: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
        batch = k.ops.cast(k.ops.shape(labels)[0], "int32")
        lengths = k.ops.cast(k.ops.shape(given)[1], "int32") * k.ops.ones((batch,), "int32")
        said = k.ops.sum(k.ops.cast(labels > 0, "int32"), axis=1)
        self.add_loss(k.ops.mean(k.ops.ctc_loss(labels, given, said, lengths, mask_index=0)))
        return given


@program("the loss added by a layer with two inputs, of labels of unequal lengths; 20 by 8")
def captcha(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        image = k.Input((48, 16, 1), name="image")
        label = k.Input((None,), dtype="int32", name="label")
        x = layers.Conv2D(16, 3, padding="same", activation="relu")(image)
        x = layers.MaxPooling2D((4, 4))(x)
        x = layers.Dense(64, activation="relu")(layers.Reshape((12, 64))(x))
        x = layers.Bidirectional(layers.LSTM(32, return_sequences=True, dropout=0.2))(x)
        model = k.Model([image, label], Ctc()(label, layers.Dense(12)(x)))
        model.compile("adam")
    texts = data.padded(data.tokens(20, 2, 5, 12), 5)
    images = data.images(20, 48)[:, :, :16]
    found = tf.data.Dataset.from_tensor_slices({"image": images, "label": texts}).batch(8)
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


PROGRAMS: tuple[Program, ...] = (vision_transformer, unet, detection, captcha)
