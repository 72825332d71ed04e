"""Language models: masked, causal, with tied weights, with weights of low rank."""

from __future__ import annotations

from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.attention import Decoder, Encoder, Positions, causal_mask
from tests.real.program import Program, Trained, after, program

MASK = 1


class TiedHead(layers.Layer):
    """Logits of words by the table that embedded them."""

    def __init__(self, embedding: layers.Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.bias = self.add_weight(shape=(self.embedding.input_dim,), initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        table = k.ops.transpose(self.embedding.embeddings)
        return k.ops.matmul(x, table) + self.bias


class PositionTable(layers.Layer):
    """Adds as many rows of a table as the batch is long: a slice by shape."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.longest = longest

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight(shape=(self.longest, shape[-1]), initializer="uniform")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        length = k.ops.shape(x)[1]
        rows = k.ops.slice(self.table, (0, 0), (length, self.table.shape[1]))
        return x + k.ops.broadcast_to(rows, k.ops.shape(x))


def _masked(count: int, length: int, words: int) -> tuple[np.ndarray, ...]:
    """Texts with some words masked, the words, and 1 where a word was masked."""
    random = np.random.default_rng(4)
    texts = data.padded(data.tokens(count, 5, length, words), length)
    hidden = (random.random(texts.shape) < 0.2) & (texts > 0)
    hidden[:, 0] = True
    return np.where(hidden, MASK, texts), texts, hidden.astype(np.float32)


@program("a slice of the position table by shape, tied weights, weights of each word; 27 by 8")
def masked_language_model(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((None,), dtype="int32")
        embedding = layers.Embedding(250, 64, mask_zero=True)
        x = PositionTable(32)(embedding(inputs))
        for _ in range(2):
            x = Encoder(64, 4, 64)(x, mask=k.ops.not_equal(inputs, 0))
        x = layers.LayerNormalization()(layers.Dense(64, activation="gelu")(x))
        model = k.Model(inputs, TiedHead(embedding)(x))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.AdamW(1e-3), loss, weighted_metrics=["accuracy"])
    given, wanted, weights = _masked(27, 19, 250)
    history = model.fit(given, wanted, sample_weight=weights, batch_size=8, epochs=2, verbose=0)
    return after(model, seen=[history])


class Generator(k.callbacks.Callback):
    """Continues a text at the end of every epoch."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.said: list[np.ndarray] = []

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        words = [2, 3]
        for _ in range(3):
            padded = data.padded([np.array(words)], self.length)
            logits = self.model(padded)
            logits = logits[0] if isinstance(logits, list) else logits
            words.append(int(np.argmax(logits[0, len(words) - 1])))
        self.said.append(np.array(words))


@program(
    "two outputs of which one has no loss; a callback runs the model each epoch; 21 texts by 8"
)
def miniature_gpt(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((20,), dtype="int32")
        x = Positions(20, 150, 64)(inputs)
        x = Decoder(64, 2, 64, alone=True)(x)
        model = k.Model(inputs, [layers.Dense(150)(x), x])
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss=[loss, None])
    texts = data.padded(data.tokens(21, 8, 21, 150), 21)
    said = Generator(20)
    found = tf.data.Dataset.from_tensor_slices((texts[:, :-1], texts[:, 1:]))
    history = model.fit(found.shuffle(21, seed=1).batch(8), epochs=2, callbacks=[said], verbose=0)
    return after(model, seen=[history, *said.said])


class Gpt(k.Model):
    """A causal model in the subclassed style, one table for words on both ends."""

    def __init__(self, words: int, longest: int, width: int) -> None:
        super().__init__()
        self.words = layers.Embedding(words, width)
        self.places = layers.Embedding(longest, width)
        self.blocks = [Decoder(width, 4, 2 * width, alone=True) for _ in range(2)]
        self.norm = layers.LayerNormalization()

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        x = self.words(inputs) + self.places(k.ops.arange(k.ops.shape(inputs)[1]))
        for block in self.blocks:
            x = block(x)
        return k.ops.matmul(self.norm(x), k.ops.transpose(self.words.embeddings))


def _texts(count: int, shortest: int, longest: int, words: int) -> tf.data.Dataset:
    found = data.dataset(data.tokens(count, shortest, longest, words))
    return found.map(lambda sequence: (sequence[:-1], sequence[1:]))


@program("a subclassed model, tied weights, padded_batch of 26 by 8, clipping by the global norm")
def gpt_tied(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = Gpt(180, 24, 64)
        schedule = k.optimizers.schedules.CosineDecay(0.0, 10, warmup_target=1e-3, warmup_steps=2)
        model.compile(
            k.optimizers.AdamW(schedule, global_clipnorm=1.0),
            k.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
        )
    history = model.fit(_texts(26, 4, 23, 180).padded_batch(8), epochs=2, verbose=0)
    return after(model, seen=[history])


class GptBlock(layers.Layer):
    """Attention written out, heads split and joined by reshapes of the step's shapes."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def build(self, shape: Any) -> None:
        width = shape[-1]
        self.looks = layers.Dense(3 * width, name="looks")
        self.joined = layers.Dense(width, name="joined")
        self.wide = layers.Dense(2 * width, activation="gelu", name="wide")
        self.narrow = layers.Dense(width, name="narrow")
        for layer in (self.looks, self.joined, self.wide):
            layer.build(shape)
        self.narrow.build((*shape[:-1], 2 * width))

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        batch, length, width = k.ops.shape(x)
        x = k.ops.reshape(x, (batch, length, self.heads, width // self.heads))
        return k.ops.transpose(x, (0, 2, 1, 3))

    def call(self, x: tf.Tensor) -> tf.Tensor:
        query, key, value = (self._split(one) for one in k.ops.split(self.looks(x), 3, axis=-1))
        scores = k.ops.matmul(query, k.ops.transpose(key, (0, 1, 3, 2)))
        visible = k.ops.cast(causal_mask(x)[:, None], scores.dtype)
        weights = k.ops.softmax(scores / 4.0 - 1e9 * (1 - visible))
        seen = k.ops.transpose(k.ops.matmul(weights, value), (0, 2, 1, 3))
        x = x + self.joined(k.ops.reshape(seen, k.ops.shape(x)))
        return x + self.narrow(self.wide(x))


@program("heads split and joined by reshapes to shape(x); a generator of texts of any length")
def gpt_by_reshapes(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((None,), dtype="int32")
        x = PositionTable(40)(layers.Embedding(160, 64)(inputs))
        for _ in range(2):
            x = GptBlock(4)(x)
        model = k.Model(inputs, layers.Dense(160)(layers.LayerNormalization()(x)))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.Lion(1e-4), loss, metrics=["accuracy"])

    def batches() -> Any:
        random = np.random.default_rng(6)
        for size, length in ((8, 11), (6, 7), (8, 13), (4, 5)):
            texts = random.integers(0, 160, (size, length + 1))
            yield texts[:, :-1], texts[:, 1:]

    history = model.fit(batches(), epochs=1, verbose=0)
    return after(model, seen=[history])


@program("weights of low rank beside frozen ones; padded_batch of 20 by 8")
def lora(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((None,), dtype="int32")
        x = layers.Embedding(100, 512)(inputs)
        for _ in range(2):
            x = x + layers.Dense(512, activation="gelu")(x)
        model = k.Model(inputs, layers.Dense(100, name="logits")(x))
        for layer in model.layers:
            layer.trainable = False
            if isinstance(layer, layers.Dense) and layer.name != "logits":
                layer.trainable = True
                layer.enable_lora(rank=8)
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        model.compile(k.optimizers.AdamW(1e-3), loss)
    history = model.fit(_texts(20, 4, 13, 100).padded_batch(8), epochs=2, verbose=0)
    return after(model, seen=[history])


class LowRank(layers.Layer):
    """A frozen Dense layer and, beside it, a product of two narrow ones."""

    def __init__(self, frozen: layers.Dense, rank: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.frozen.trainable = False
        self.down = layers.Dense(rank, use_bias=False)
        self.up = layers.Dense(frozen.units, use_bias=False, kernel_initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.frozen(x) + self.up(self.down(x)) * 2.0


@program("adapters in place of a trained model's layers, which is compiled again; 21 texts by 8")
def lora_by_hand(strategy: tf.distribute.Strategy) -> Trained:
    texts = data.padded(data.tokens(21, 8, 16, 120), 16)
    with strategy.scope():
        dense = [layers.Dense(512, activation="tanh") for _ in range(2)]
        table, head = layers.Embedding(120, 512), layers.Dense(120)
        inputs = k.Input((None,), dtype="int32")
        base = k.Model(inputs, head(dense[1](dense[0](table(inputs)))))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        base.compile("sgd", loss)
        before = base.fit(texts[:, :-1], texts[:, 1:], batch_size=8, verbose=0)
        table.trainable = head.trainable = False
        x = table(inputs)
        for layer in dense:
            x = LowRank(layer, 8)(x)
        model = k.Model(inputs, head(x))
        model.compile(k.optimizers.Adam(1e-3), loss)
    history = model.fit(texts[:, :-1], texts[:, 1:], batch_size=8, epochs=2, verbose=0)
    return after(model, seen=[before, history])


PROGRAMS: tuple[Program, ...] = (
    masked_language_model,
    miniature_gpt,
    gpt_tied,
    gpt_by_reshapes,
    lora,
    lora_by_hand,
)
