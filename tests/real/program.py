"""A program of the corpus: what it is called, what is odd about it, and what it leaves behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

MIRRORED, TPU, WORKERS = "mirrored", "tpu", "workers"

GROUNDS: dict[str, str] = {
    MIRRORED: "MirroredStrategy, 2 replicas in one process",
    TPU: "TPUStrategy, 4 emulated cores",
    WORKERS: "MultiWorkerMirroredStrategy, 2 processes of one replica",
}


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a training leaves behind.

    Attributes:
        weights: The weights that it trained, Keras's or `tf.Variable`s.
        state: All other variables that it writes: slots, counters, moving averages, metrics.
        seen: What it returned on its way: losses, metrics, predictions.
    """

    weights: list[Any]
    state: list[Any]
    seen: list[Any]


Train = Callable[[tf.distribute.Strategy], Trained]


@dataclasses.dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        name: Its name.
        odd: What is odd about its data or its loop.
        train: Makes the model under a strategy and trains it.
        refused: By ground, why TensorFlow itself does not run it there.
        alone: Why less than the bar of its weights is sharded, where that is so; else "".
        near: By how much results may differ relative to a tensor's largest element, where a norm
            or a mean is taken over shards.
    """

    name: str
    odd: str
    train: Train
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    alone: str = ""
    near: float = 0.0


def program(
    odd: str, *, refused: Mapping[str, str] | None = None, alone: str = "", near: float = 0.0
) -> Callable[[Train], Program]:
    """Makes a program of a function, under the function's name; see `Program`."""

    def made(train: Train) -> Program:
        return Program(train.__name__, odd, train, refused or {}, alone, near)

    return made


def after(*models: Any, seen: Iterable[Any] = ()) -> Trained:
    """What compiled models leave; `seen` are what `fit` returned, or numbers."""
    return of(
        [weight for model in models for weight in model.trainable_weights],
        [model.optimizer for model in models],
        [weight for model in models for weight in model.non_trainable_weights],
        seen=seen,
    )


def of(
    weights: Iterable[Any],
    optimizers: Iterable[Any],
    others: Iterable[Any] = (),
    *,
    seen: Iterable[Any] = (),
) -> Trained:
    """What weights and the optimizers that trained them leave."""
    slots = [v for optimizer in optimizers for v in _variables(optimizer)]
    numbers = [number for one in seen for number in _numbers(one)]
    return Trained([*weights], [*slots, *others], numbers)


def _variables(optimizer: Any) -> list[Any]:
    # A method of tf_keras' older optimizers, a property of all others.
    found = optimizer.variables
    return [*(found() if callable(found) else found)]


def _numbers(seen: Any) -> list[Any]:
    history = getattr(seen, "history", None)
    if history is None:
        return [seen]
    return [history[key] for key in sorted(history)]
