"""Sequences of unequal lengths: recurrent nets, encoders and decoders, tags."""

from __future__ import annotations

from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.attention import Decoder, Encoder, Positions
from tests.real.program import Program, Trained, after, of, program


def _pairs(count: int, shortest: int, longest: int, words: int, classes: int) -> tf.data.Dataset:
    sequences = data.dataset(data.tokens(count, shortest, longest, words))
    wanted = tf.data.Dataset.from_tensor_slices(data.labels(count, classes))
    return tf.data.Dataset.zip((sequences, wanted))


@program("padded_batch of 27 sequences by 6, mask_zero")
def bidirectional_lstm(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((None,), dtype="int32")
        x = layers.Embedding(200, 32, mask_zero=True)(inputs)
        x = layers.Bidirectional(layers.LSTM(32, return_sequences=True))(x)
        x = layers.Bidirectional(layers.LSTM(32))(x)
        model = k.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    found = _pairs(27, 4, 13, 200, 2).padded_batch(6)
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("batches by length, of other sizes for each bucket")
def bucketed_gru(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = k.Sequential(
            [
                k.Input((None,), dtype="int32"),
                layers.Embedding(300, 32, mask_zero=True),
                layers.GRU(64),
                layers.Dense(64, activation="relu"),
                layers.Dense(5),
            ]
        )
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.RMSprop(1e-2), loss)
    found = _pairs(31, 2, 16, 300, 5).bucket_by_sequence_length(
        lambda sequence, _: tf.shape(sequence)[0],
        bucket_boundaries=[6, 11],
        bucket_batch_sizes=[8, 6, 4],
    )
    history = model.fit(found, epochs=1, verbose=0)
    return after(model, seen=[history])


@program("two inputs and a state handed from encoder to decoder; 21 pairs in batches of 8")
def seq2seq_lstm(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        source = k.Input((None, 40))
        _, hidden, cell = layers.LSTM(48, return_state=True)(source)
        target = k.Input((None, 40))
        decoder = layers.LSTM(48, return_sequences=True, return_state=True)
        decoded, _, _ = decoder(target, initial_state=[hidden, cell])
        model = k.Model([source, target], layers.Dense(40, activation="softmax")(decoded))
        model.compile("rmsprop", "categorical_crossentropy", metrics=["accuracy"])
    one_hot = np.eye(40, dtype=np.float32)
    source_texts = one_hot[data.padded(data.tokens(21, 3, 9, 40), 9)]
    target_texts = one_hot[data.padded(data.tokens(21, 4, 12, 40), 12)]
    wanted = np.roll(target_texts, -1, axis=1)
    history = model.fit([source_texts, target_texts], wanted, batch_size=8, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("a dictionary of two inputs, each padded to its batch's longest; a causal mask by shape")
def seq2seq_transformer(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        source = k.Input((None,), dtype="int32", name="source")
        encoded = Encoder(64, 4, 64)(Positions(24, 150, 64)(source))
        target = k.Input((None,), dtype="int32", name="target")
        x = Positions(24, 150, 64)(target)
        x = layers.Dropout(0.3)(Decoder(64, 4, 64)(x, encoded))
        model = k.Model([source, target], layers.Dense(150)(x))
        model.compile(
            "rmsprop",
            k.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
            weighted_metrics=["accuracy"],
        )
    sources, targets = data.tokens(23, 3, 14, 150), data.tokens(23, 4, 17, 150)

    def prepared(given: tf.Tensor, said: tf.Tensor) -> Any:
        return {"source": given, "target": said[:-1]}, said[1:]

    found = tf.data.Dataset.zip((data.dataset(sources), data.dataset(targets)))
    found = found.map(prepared).padded_batch(8)
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("embeddings of tokens and of arange(shape(x)[-1]); 29 texts in batches of 8")
def text_classifier(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((20,), dtype="int32")
        x = Encoder(64, 2, 64)(Positions(20, 300, 64)(inputs))
        x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
        x = layers.Dropout(0.1)(layers.Dense(20, activation="relu")(x))
        model = k.Model(inputs, layers.Dense(2, activation="softmax")(x))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    texts = k.utils.pad_sequences(data.tokens(29, 6, 30, 300), maxlen=20)
    history = model.fit(
        *(texts[:25], data.labels(29, 2)[:25]),
        batch_size=8,
        epochs=2,
        verbose=0,
        validation_data=(texts[25:], data.labels(29, 2)[25:]),
    )
    return after(model, seen=[history])


class TagLoss(k.losses.Loss):
    """The mean over the words that are no padding."""

    def call(self, wanted: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
        each = k.losses.sparse_categorical_crossentropy(wanted, given, from_logits=True)
        mask = k.ops.cast(wanted > 0, each.dtype)
        return k.ops.sum(each * mask) / k.ops.maximum(k.ops.sum(mask), 1)


@program("a tag for each word; padded_batch of 22 by 8, a loss that masks the padding itself")
def named_entities(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((None,), dtype="int32")
        x = Encoder(64, 4, 64)(Positions(32, 200, 64)(inputs))
        x = layers.Dense(64, activation="relu")(layers.Dropout(0.1)(x))
        model = k.Model(inputs, layers.Dense(9)(layers.Dropout(0.1)(x)))
        model.compile("adam", TagLoss())
    found = data.dataset(data.tokens(22, 3, 19, 200))
    found = found.map(lambda sequence: (sequence, 1 + sequence % 8))
    history = model.fit(found.padded_batch(8), epochs=2, verbose=0)
    return after(model, seen=[history])


@program("a tf.while_loop over a batch's words, its gradient taken twice of a tape; 22 by 8")
def recurrence_by_hand(strategy: tf.distribute.Strategy) -> Trained:
    random = np.random.default_rng(4)
    with strategy.scope():
        table, state, entering = (
            tf.Variable(random.standard_normal((rows, 96)).astype(np.float32) * 0.1)
            for rows in (120, 96, 96)
        )
        optimizers = [k.optimizers.Adam(1e-3), k.optimizers.SGD(1e-2, momentum=0.9)]
        optimizers[0].build([table])
        optimizers[1].build([state, entering])

    def step(words: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(persistent=True) as tape:
            given, length = tf.matmul(tf.one_hot(words, 120), table), tf.shape(words)[1]

            def once(place: tf.Tensor, now: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return place + 1, tf.tanh(now @ state + given[:, place] @ entering)

            last = tf.while_loop(lambda place, _: place < length, once, (0, given[:, 0]))[1]
            loss = tf.reduce_sum(last**2) / 8
        for optimizer, weights in zip(optimizers, ([table], [state, entering]), strict=True):
            optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    @tf.function
    def train(words: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, (words,)), axis=None)

    found = data.dataset(data.tokens(22, 3, 9, 120)).padded_batch(8)
    losses = [train(words) for words in strategy.experimental_distribute_dataset(found)]
    return of([table, state, entering], optimizers, seen=losses)


PROGRAMS: tuple[Program, ...] = (
    bidirectional_lstm,
    bucketed_gru,
    seq2seq_lstm,
    seq2seq_transformer,
    text_classifier,
    named_entities,
    recurrence_by_hand,
)
