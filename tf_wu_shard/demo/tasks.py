"""The trainings of the demo: a language model on real text, thrice, and a classifier of digits.

A task is everything a run needs and nothing about how its weights are updated, so that the runs
of a task differ in that alone. Sizes are chosen for two cores and a few minutes: large enough
that the optimizer's slots are most of a replica's memory, far too small to be good models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras
import numpy as np

from tf_wu_shard import models
from tf_wu_shard.models.topics import topics, windows

Arrays = tuple[np.ndarray, np.ndarray]

# Of the weights of every run.
SEED = 2020

# Of the order of the examples.
_SEED = 20


@dataclasses.dataclass(frozen=True)
class Task:
    """One training.

    Attributes:
        name: As in `runs.TITLES`.
        batch: Examples per replica and step.
        steps: Number of steps.
        model: Makes the uncompiled model; weights follow `keras.utils.set_random_seed`.
        optimizer: Makes the optimizer.
        loss: Makes the loss.
        examples: All examples, shuffled once; the last `held_out` of them are not trained on.
        held_out: How many.
        score: Of logits and targets of the held-out examples.
    """

    name: str
    batch: int
    steps: int
    model: Callable[[], keras.Model]
    optimizer: Callable[[], keras.optimizers.Optimizer]
    loss: Callable[[], keras.losses.Loss]
    examples: Arrays
    held_out: int
    score: Callable[[np.ndarray, np.ndarray], float]

    def training(self, replicas: int, *, in_other_places: bool = False) -> Arrays:
        """Returns the examples of all steps, starting over when they run out.

        The last step has one example less than the others, as data seldom divides by the batch: the
        last replica gets fewer, or none, and Keras counts the loss of one that has none as 0.

        Args:
            replicas: How many share a step's examples.
            in_other_places: Whether the last replica gets those of the second, and so on. Where
                replicas are summed in their order, this changes the order of the sums and nothing
                else. The first one stays, as its loss may be the one that is reported, and so does
                the last step.
        """
        count = len(self.examples[0]) - self.held_out
        together = self.batch * replicas
        rows = np.arange(self.steps * together)
        if in_other_places:
            by_replica = rows.reshape(-1, replicas, self.batch)
            by_replica[:-1, 1:] = by_replica[:-1, :0:-1].copy()
        rows = rows[:-1] % count
        inputs, targets = self.examples
        return inputs[rows], targets[rows]

    def testing(self) -> Arrays:
        """Returns the held-out examples."""
        inputs, targets = self.examples
        return inputs[-self.held_out :], targets[-self.held_out :]

    def held_out_score(self, model: keras.Model) -> float:
        """Returns the score of a trained model."""
        inputs, targets = self.testing()
        return self.score(np.asarray(model(inputs, training=False)), targets)


def task(name: str, quick: bool) -> Task:
    """Returns the task of that name; `quick` makes it a matter of seconds."""
    made: dict[str, Callable[[bool], Task]] = {
        "language_model": _language_model,
        "digits": _digits,
        "workers_language_model": _workers_language_model,
        "tpu_language_model": _tpu_language_model,
    }
    return made[name](quick)


def _language_model(quick: bool, steps: int = 40) -> Task:
    length, width, depth, steps = (16, 32, 1, 12) if quick else (48, 256, 1, steps)
    corpus = topics()
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=2e-3, warmup_steps=steps // 10
    )
    return Task(
        name="language_model",
        batch=1,
        steps=steps,
        model=lambda: models.build(
            "transformer_lm",
            vocabulary=len(corpus.words),
            length=length,
            width=width,
            heads=4,
            depth=depth,
        ),
        optimizer=lambda: keras.optimizers.AdamW(schedule, weight_decay=0.01),
        loss=lambda: models.loss("transformer_lm"),
        examples=windows(corpus, length, _SEED),
        held_out=64,
        score=_perplexity,
    )


def _tpu_language_model(quick: bool) -> Task:
    """The same model and data; its step takes longer to trace, as every replica gets its ops."""
    same = _language_model(quick, steps=12)
    return dataclasses.replace(same, name="tpu_language_model")


def _workers_language_model(quick: bool) -> Task:
    """The same model and data for processes, which are slow to start and share few cores."""
    same = _language_model(quick, steps=12)
    return dataclasses.replace(same, name="workers_language_model")


def _digits(quick: bool) -> Task:
    return Task(
        name="digits",
        batch=8,
        steps=12 if quick else 40,
        model=lambda: models.build("digits", filters=4 if quick else 32, width=256),
        # Not Adam: near the end gradients are so small that it would amplify their rounding
        # noise, and a comparison that allows for that shows little.
        optimizer=lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        loss=lambda: models.loss("digits"),
        examples=models.data("digits", examples=1797, seed=_SEED),
        held_out=297,
        score=_accuracy,
    )


def _perplexity(logits: np.ndarray, targets: np.ndarray) -> float:
    """Returns exp of the mean cross-entropy of logits [n, length, words], targets [n, length]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=-1))
    chosen = np.take_along_axis(shifted, targets[..., None], axis=-1)[..., 0]
    return float(np.exp(np.mean(log_total - chosen)))


def _accuracy(logits: np.ndarray, targets: np.ndarray) -> float:
    """Returns the share of logits [n, 10] whose largest is the target [n]."""
    return float(np.mean(np.argmax(logits, axis=-1) == targets))
