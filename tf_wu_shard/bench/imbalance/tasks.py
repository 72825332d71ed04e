"""What is trained: images of digits, or real text whose examples are of unequal lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_wu_shard import models
from tf_wu_shard.models.topics import topics, windows

# Of the order of examples that is the same for every seed of a training.
_SEED = 20

_LONGEST = 160
_FEWEST_TOKENS = 4
_WINDOW = 32
_WIDTH = 96
_PADDING = -1

Batch = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Task:
    """One training.

    Attributes:
        model: Makes the uncompiled model.
        loss: Of targets and outputs, over the number of replicas.
        batch: Of a number and a size, examples for a worker.
        held_out: Examples that no batch has.
        score: Of targets and outputs of these; see `score_name`.
        score_name: What it is.
        higher_is_better: Whether more of it is.
        rate: What SGD's learning rate begins with, without momentum; with one it is as much less as
            the momentum makes of each gradient more, by 1 / (1 - momentum). By a cosine it falls to
            zero with the last step: at a constant rate the noise of the last few steps, in time or
            late, is what a score shows.
        by_fit: Whether it is trained by tf_keras' fit, see `by_fit`, with a model of its own.
    """

    model: Callable[[], Any]
    loss: Callable[[Any, Any], Any]
    batch: Callable[[int, int], Batch]
    held_out: Batch
    score: Callable[[np.ndarray, np.ndarray], float]
    score_name: str
    higher_is_better: bool
    rate: float
    by_fit: bool = False


def task(name: str, seed: int) -> Task:
    """The task of that name.

    Args:
        name: "digits", "digits_by_fit", "language_model" or "text".
        seed: Of the order of the examples.
    """
    made = {
        "digits": _digits,
        "digits_by_fit": _digits_by_fit,
        "language_model": _language_model,
        "text": _text,
    }
    return made[name](seed)


def _digits(seed: int) -> Task:
    images, labels = models.data("digits", examples=1797, seed=_SEED)
    held_out = images[-297:], labels[-297:]
    return Task(
        model=lambda: models.build("digits", filters=8, width=64),
        loss=models.loss("digits"),
        batch=_shuffled((images[:-297], labels[:-297]), seed),
        held_out=held_out,
        score=_accuracy,
        score_name="accuracy, %",
        higher_is_better=True,
        # About the best for synchronous training; more of it diverges.
        rate=0.4,
    )


def _digits_by_fit(seed: int) -> Task:
    return dataclasses.replace(_digits(seed), by_fit=True)


def _language_model(seed: int) -> Task:
    corpus = topics()
    ids, following = windows(corpus, _WINDOW, _SEED)
    return Task(
        model=lambda: models.build(
            "transformer_lm",
            vocabulary=len(corpus.words),
            length=_WINDOW,
            width=_WIDTH,
            heads=4,
            depth=1,
        ),
        loss=models.loss("transformer_lm"),
        batch=_shuffled((ids[:-64], following[:-64]), seed),
        held_out=(ids[-64:], following[-64:]),
        score=_perplexity,
        score_name="perplexity",
        higher_is_better=False,
        rate=0.5,
    )


def _text(seed: int) -> Task:
    """Paragraphs as they come, unsorted: a batch is as long as its longest."""
    corpus = topics()
    ends = [number for number, word in enumerate(corpus.words) if word in (".", ":")]
    cuts = np.flatnonzero(np.isin(corpus.ids, ends)) + 1
    parts = [part[: _LONGEST + 1] for part in np.split(corpus.ids, cuts)]
    parts = [part for part in parts if len(part) > _FEWEST_TOKENS]
    order = np.random.default_rng(_SEED).permutation(len(parts))
    parts = [parts[number] for number in order]
    own = np.random.default_rng(seed).permutation(len(parts) - 64)

    def batch(number: int, size: int) -> Batch:
        rows = (number * size + np.arange(size)) % len(own)
        return _padded([parts[own[row]] for row in rows])

    def model() -> Any:
        layers = keras.layers
        return keras.Sequential(
            [
                layers.Input((None,), dtype="int32"),
                layers.Embedding(len(corpus.words), _WIDTH),
                layers.LSTM(_WIDTH, return_sequences=True),
                layers.Dense(len(corpus.words)),
            ]
        )

    return Task(
        model=model,
        loss=_of_tokens,
        batch=batch,
        held_out=_padded(parts[-64:]),
        score=_perplexity,
        score_name="perplexity",
        higher_is_better=False,
        rate=1.0,
    )


def _shuffled(examples: Batch, seed: int) -> Callable[[int, int], Batch]:
    inputs, targets = examples
    order = np.random.default_rng(seed).permutation(len(inputs))

    def batch(number: int, size: int) -> Batch:
        rows = order[(number * size + np.arange(size)) % len(order)]
        return inputs[rows], targets[rows]

    return batch


def _padded(parts: list[np.ndarray]) -> Batch:
    longest = max(len(part) for part in parts)
    whole = np.full((len(parts), longest), _PADDING, np.int32)
    for row, part in zip(whole, parts, strict=True):
        row[: len(part)] = part
    # What is no token is an input as any other, and no target.
    return np.maximum(whole[:, :-1], 0), whole[:, 1:]


def _of_tokens(targets: Any, logits: Any) -> Any:
    is_token = tf.cast(targets != _PADDING, tf.float32)
    of_each = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(targets, 0), logits)
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return tf.reduce_sum(of_each * is_token) / tf.reduce_sum(is_token) / replicas


def _accuracy(targets: np.ndarray, logits: np.ndarray) -> float:
    return 100 * float(np.mean(np.argmax(logits, -1) == targets))


def _perplexity(targets: np.ndarray, logits: np.ndarray) -> float:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    chosen = np.take_along_axis(logs, np.maximum(targets, 0)[..., None], -1)[..., 0]
    # A training that went astray has one beyond all numbers.
    return float(np.exp(-np.float64(chosen[targets != _PADDING].mean())))
