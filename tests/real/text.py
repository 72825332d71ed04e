"""Text through tensorflow-text: ragged, trimmed, packed, padded; and through TextVectorization."""

from __future__ import annotations

from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
import tensorflow_text as tft
from keras import layers

from tests.real import data
from tests.real.attention import Encoder, Positions
from tests.real.program import Program, Trained, after, program

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_PAD, _UNKNOWN, _START, _END, _MASK = range(5)


def _wordpieces() -> tft.BertTokenizer:
    pieces = [*_SPECIAL, *data.vocabulary(), *(f"##{letter}" for letter in "abcdefghinorst")]
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(pieces, tf.range(len(pieces), dtype=tf.int64)), 1
    )
    return tft.BertTokenizer(table, token_out_type=tf.int32)


def _bert(words: int, width: int) -> k.Model:
    names = ("words", "mask", "segments")
    given = {name: k.Input((None,), dtype="int32", name=name) for name in names}
    x = Positions(32, words, width)(given["words"])
    x = x + layers.Embedding(2, width)(given["segments"])
    for _ in range(2):
        x = Encoder(width, 4, width)(x, mask=k.ops.cast(given["mask"], "bool"))
    return k.Model(given, x)


@program("sentence pairs trimmed, packed and padded to the batch by tensorflow-text; 29 by 8")
def bert_pairs(strategy: tf.distribute.Strategy) -> Trained:
    tokenizer = _wordpieces()

    def packed(first: tf.Tensor, second: tf.Tensor, label: tf.Tensor) -> Any:
        pair = [tokenizer.tokenize(text).merge_dims(-2, -1) for text in (first, second)]
        pair = tft.RoundRobinTrimmer(20).trim(pair)
        words, segments = tft.combine_segments(pair, _START, _END)
        filled = words.to_tensor()
        mask = tf.cast(filled != _PAD, tf.int32)
        return {"words": filled, "mask": mask, "segments": segments.to_tensor()}, label

    texts = data.sentences(58)
    found = tf.data.Dataset.from_tensor_slices((texts[:29], texts[29:], data.labels(29, 2)))
    found = found.shuffle(29, seed=3).batch(8).map(packed).prefetch(1)
    with strategy.scope():
        encoder = _bert(80, 64)
        first = layers.Dense(64, activation="tanh")(encoder.output[:, 0, :])
        answer = layers.Dense(1, name="answer")(layers.Dropout(0.1)(first))
        model = k.Model(encoder.input, answer)
        loss = k.losses.BinaryCrossentropy(from_logits=True)
        schedule = k.optimizers.schedules.PolynomialDecay(1e-4, 10, 0.0)
        optimizer = k.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0)
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        model.compile(optimizer, loss, metrics=["binary_accuracy"])
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("words masked by tensorflow-text, as many guesses as a row has, gathered; 27 by 8")
def bert_masked(strategy: tf.distribute.Strategy) -> Trained:
    tokenizer = _wordpieces()
    # A random selector does not draw the same each time, whatever the seed.
    chooser = tft.FirstNItemSelector(3, unselectable_ids=[_START, _END, _UNKNOWN])
    values = tft.MaskValuesChooser(70, _MASK, 1.0, 0.0)

    def masked(texts: tf.Tensor) -> Any:
        words = tokenizer.tokenize(texts).merge_dims(-2, -1)
        words, segments = tft.combine_segments([words], _START, _END)
        hidden, places, ids = tft.mask_language_model(words, chooser, values)
        length = words.bounding_shape()[1]
        given, mask = tft.pad_model_inputs(hidden, max_seq_length=tf.cast(length, tf.int32))
        places, weights = tft.pad_model_inputs(places, max_seq_length=3)
        ids, _ = tft.pad_model_inputs(ids, max_seq_length=3)
        segments, _ = tft.pad_model_inputs(segments, max_seq_length=tf.cast(length, tf.int32))
        features = {"words": given, "mask": mask, "segments": segments, "places": places}
        return features, ids, tf.cast(weights, tf.float32)

    found = tf.data.Dataset.from_tensor_slices(data.sentences(27)).batch(8).map(masked)
    with strategy.scope():
        encoder = _bert(80, 64)
        places = k.Input((3,), dtype="int32", name="places")
        at = k.ops.take_along_axis(encoder.output, places[:, :, None], axis=1)
        x = layers.LayerNormalization()(layers.Dense(64, activation="gelu")(at))
        model = k.Model(encoder.input | {"places": places}, layers.Dense(80)(x))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.AdamW(1e-3), loss, weighted_metrics=["accuracy"])
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


@program(
    "translation of ragged texts: split by WhitespaceTokenizer, to_tensor batch by batch; 25 by 8"
)
def translation_with_attention(strategy: tf.distribute.Strategy) -> Trained:
    tokenizer = tft.WhitespaceTokenizer()
    lookup = layers.StringLookup(vocabulary=["[START]", "[END]", *data.vocabulary()], mask_token="")

    def cleaned(text: tf.Tensor) -> tf.Tensor:
        text = tf.strings.regex_replace(tft.normalize_utf8(text, "NFKD"), "[^ a-z]", "")
        return tf.strings.join(["[START]", text, "[END]"], separator=" ")

    def prepared(source: tf.Tensor, target: tf.Tensor) -> Any:
        sides = [lookup(tokenizer.tokenize(cleaned(text))) for text in (source, target)]
        given, said = sides[0].to_tensor(), sides[1]
        return (given, said[:, :-1].to_tensor()), said[:, 1:].to_tensor()

    words = lookup.vocabulary_size()
    with strategy.scope():
        source = k.Input((None,), dtype="int64")
        x = layers.Embedding(words, 64, mask_zero=True)(source)
        x = layers.Bidirectional(layers.GRU(64, return_sequences=True), merge_mode="sum")(x)
        target = k.Input((None,), dtype="int64")
        y = layers.Embedding(words, 64, mask_zero=True)(target)
        y = layers.GRU(64, return_sequences=True)(y)
        seen = layers.MultiHeadAttention(1, 64)(query=y, value=x)
        y = layers.LayerNormalization()(layers.Add()([y, seen]))
        model = k.Model([source, target], layers.Dense(words)(y))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        model.compile("adam", loss)
    texts = data.sentences(50)
    found = tf.data.Dataset.from_tensor_slices((texts[:25], texts[25:]))
    history = model.fit(found.batch(8).map(prepared), epochs=1, verbose=0)
    return after(model, seen=[history])


@program("TextVectorization adapted to the texts, then in tf.data; a Conv1D net; 30 texts by 8")
def text_from_scratch(strategy: tf.distribute.Strategy) -> Trained:
    texts, wanted = data.sentences(30), data.labels(30, 2)
    vectorize = layers.TextVectorization(max_tokens=60, output_sequence_length=14)
    vectorize.adapt(texts)
    with strategy.scope():
        inputs = k.Input((None,), dtype="int64")
        x = layers.Dropout(0.5)(layers.Embedding(60, 64)(inputs))
        x = layers.Conv1D(64, 3, padding="valid", activation="relu", strides=2)(x)
        x = layers.Conv1D(64, 3, padding="same", activation="relu", strides=2)(x)
        x = layers.GlobalMaxPooling1D()(x)
        x = layers.Dropout(0.5)(layers.Dense(64, activation="relu")(x))
        model = k.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    rows = tf.data.Dataset.from_tensor_slices((texts, wanted)).batch(8)
    rows = rows.map(lambda text, label: (vectorize(text), label)).cache().prefetch(2)
    history = model.fit(rows, epochs=2, verbose=0, validation_data=rows.take(2))
    return after(model, seen=[history])


@program(
    "bigrams as a bag of 512, weighted by tf-idf; an optimizer of norms; 45 rows by 16", near=2e-6
)
def bag_of_bigrams(strategy: tf.distribute.Strategy) -> Trained:
    texts, wanted = data.sentences(45), data.labels(45, 5)
    vectorize = layers.TextVectorization(
        max_tokens=512, ngrams=2, output_mode="tf_idf", pad_to_max_tokens=True
    )
    vectorize.adapt(texts)
    with strategy.scope():
        model = k.Sequential([k.Input((512,)), layers.Dense(128, "relu"), layers.Dense(5)])
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.Lamb(1e-2), loss, metrics=["accuracy"])
    history = model.fit(np.array(vectorize(texts)), wanted, batch_size=16, epochs=2, verbose=0)
    return after(model, seen=[history])


PROGRAMS: tuple[Program, ...] = (
    bert_pairs,
    bert_masked,
    translation_with_attention,
    text_from_scratch,
    bag_of_bigrams,
)
