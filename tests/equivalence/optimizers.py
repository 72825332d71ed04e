"""The optimizers of the equivalence matrix, by name, with the slots that each must have in shards.

Answers: what a name means and how many slots as large as its weight it keeps. Rates are high enough
that every weight moves well beyond rounding in 20 steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

v1 = tf.compat.v1.train
k = keras.optimizers


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One optimizer.

    Attributes:
        make: Makes it; a fused one gets the variable that counts its steps, one of Keras may get
            more options.
        slots: How many slots of the weight's shape it keeps for each weight.
        fused: Whether it is one of `tf.compat.v1.train`, whose updates are ResourceApply* ops.
        legacy: Whether it is one of tf_keras, which trains models of its own.
    """

    make: Callable[..., Any]
    slots: int
    fused: bool = False
    legacy: bool = False


def _keras(slots: int, make: Callable[..., Any], **arguments: Any) -> Recipe:
    return Recipe(lambda **more: make(**(arguments | more)), slots)


def _fused(slots: int, make: Callable[..., Any], *arguments: Any, **named: Any) -> Recipe:
    return Recipe(lambda step: make(*arguments, **named), slots, fused=True)


def _decaying() -> keras.optimizers.schedules.LearningRateSchedule:
    return k.schedules.ExponentialDecay(0.02, decay_steps=5, decay_rate=0.8)


def _branching() -> keras.optimizers.schedules.LearningRateSchedule:
    # Its warm-up and its decay are the two branches of a tf.cond.
    return k.schedules.CosineDecay(0.002, decay_steps=20, warmup_target=0.02, warmup_steps=6)


KERAS: dict[str, Recipe] = {
    "sgd": _keras(0, k.SGD, learning_rate=0.05),
    "momentum": _keras(1, k.SGD, learning_rate=0.02, momentum=0.9),
    "nesterov": _keras(1, k.SGD, learning_rate=0.02, momentum=0.9, nesterov=True),
    "adam": _keras(2, k.Adam, learning_rate=0.01),
    "amsgrad": _keras(3, k.Adam, learning_rate=0.01, amsgrad=True),
    "adamw": _keras(2, k.AdamW, learning_rate=0.01, weight_decay=0.1),
    "adamax": _keras(2, k.Adamax, learning_rate=0.01),
    "nadam": _keras(2, k.Nadam, learning_rate=0.01),
    "rmsprop": _keras(1, k.RMSprop, learning_rate=0.005),
    "centered_rmsprop": _keras(
        3, k.RMSprop, learning_rate=0.005, momentum=0.9, centered=True, epsilon=1e-3
    ),
    "adagrad": _keras(1, k.Adagrad, learning_rate=0.05),
    "adadelta": _keras(2, k.Adadelta, learning_rate=1.0),
    "ftrl": _keras(
        2,
        k.Ftrl,
        learning_rate=0.1,
        l1_regularization_strength=1e-3,
        l2_regularization_strength=1e-3,
    ),
    "lion": _keras(1, k.Lion, learning_rate=0.002),
    "sgd_weight_decay": _keras(0, k.SGD, learning_rate=0.05, weight_decay=0.1),
    "momentum_clipnorm": _keras(1, k.SGD, learning_rate=0.05, momentum=0.9, clipnorm=0.1),
    "adam_clipvalue": _keras(2, k.Adam, learning_rate=0.01, clipvalue=0.02),
    "adam_global_clipnorm": _keras(2, k.Adam, learning_rate=0.01, global_clipnorm=0.1),
    "lion_weight_decay": _keras(1, k.Lion, learning_rate=0.002, weight_decay=0.1),
    "adam_schedule": Recipe(lambda: k.Adam(_decaying()), 2),
    "nesterov_cond_schedule": Recipe(
        lambda: k.SGD(_branching(), momentum=0.9, nesterov=True, weight_decay=0.01), 1
    ),
}

FUSED: dict[str, Recipe] = {
    "v1_gradient_descent": _fused(0, v1.GradientDescentOptimizer, 0.05),
    "v1_momentum": _fused(1, v1.MomentumOptimizer, 0.02, 0.9),
    "v1_nesterov": _fused(1, v1.MomentumOptimizer, 0.02, 0.9, use_nesterov=True),
    "v1_adam": _fused(2, v1.AdamOptimizer, 0.01),
    "v1_rmsprop": _fused(2, v1.RMSPropOptimizer, 0.005, momentum=0.5),
    "v1_centered_rmsprop": _fused(3, v1.RMSPropOptimizer, 0.005, centered=True, epsilon=1e-3),
    "v1_adagrad": _fused(1, v1.AdagradOptimizer, 0.05),
    "v1_adadelta": _fused(2, v1.AdadeltaOptimizer, 1.0),
    "v1_ftrl": _fused(
        2,
        v1.FtrlOptimizer,
        0.1,
        l1_regularization_strength=1e-3,
        l2_regularization_strength=1e-3,
    ),
    "v1_proximal_adagrad": _fused(
        1, v1.ProximalAdagradOptimizer, 0.05, l1_regularization_strength=1e-3
    ),
    "v1_proximal_gradient_descent": _fused(
        0, v1.ProximalGradientDescentOptimizer, 0.05, l1_regularization_strength=1e-3
    ),
    "v1_adagrad_da": Recipe(lambda step: v1.AdagradDAOptimizer(0.05, step), 2, fused=True),
}

RECIPES = KERAS | FUSED
