"""The rows of the coverage matrix: every optimizer class of Keras, and others that people use.

Answers: how a row's optimizer is made, what its class is called, and which classes Keras has.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

import keras
import tensorflow as tf
import tf_keras

from tests.equivalence import norm_optimizers
from tests.equivalence.legacy_optimizers import LEGACY
from tests.equivalence.optimizers import FUSED, KERAS, Recipe

k = keras.optimizers

# Recipes whose point is a feature, which is a column here.
_FEATURED = {
    *("sgd_weight_decay", "momentum_clipnorm", "adam_clipvalue", "adam_global_clipnorm"),
    *("lion_weight_decay", "adam_schedule", "nesterov_cond_schedule"),
}


def _scaled(**options: Any) -> keras.optimizers.Optimizer:
    """Options are those of the optimizer inside: a wrapper takes none."""
    return k.LossScaleOptimizer(k.Adam(0.01, **options), initial_scale=8.0, dynamic_growth_steps=2)


def _several(**options: Any) -> keras.optimizers.Optimizer:
    """Options are those of the optimizers inside: a wrapper takes none."""
    second = k.SGD(0.02, momentum=0.9, **options)
    return k.MultiOptimizer(k.OptimizerMap(k.Adam(0.01, **options), {"(.*/)?second/.*": second}))


def _model_garden(optimizer: Any, learning_rate: float) -> Recipe:
    return Recipe(lambda **more: optimizer(learning_rate=learning_rate, **more), slots=0)


ROWS: dict[str, Recipe] = {
    **{name: recipe for name, recipe in KERAS.items() if name not in _FEATURED},
    "adafactor": Recipe(lambda **more: k.Adafactor(0.05, **more), slots=0),
    "lamb": Recipe(lambda **more: k.Lamb(0.01, **more), slots=2),
    "muon": Recipe(lambda **more: k.Muon(0.01, **more), slots=1),
    "schedule_free_adamw": Recipe(lambda **more: k.ScheduleFreeAdamW(0.01, **more), slots=2),
    "loss_scale_of_adam": Recipe(_scaled, slots=2),
    "adam_and_momentum": Recipe(_several, slots=0),
    "garden_adam_weight_decay": _model_garden(norm_optimizers.AdamWeightDecay, 0.01),
    "garden_lamb": _model_garden(norm_optimizers.Lamb, 0.01),
    "garden_lars": _model_garden(norm_optimizers.Lars, 0.5),
    **LEGACY,
    **FUSED,
}


def class_name(row: str) -> str:
    """The class of a row's optimizer, as users write it."""
    recipe = ROWS[row]
    if recipe.fused:
        made = type(recipe.make(tf.Variable(0, dtype=tf.int64)))
        return f"tf.compat.v1.train.{made.__name__}"
    made = type(recipe.make())
    for package in ("optimizers.legacy", "optimizers") if recipe.legacy else ():
        if vars(_member(package)).get(made.__name__) is made:
            return f"tf_keras.{package}.{made.__name__}"
    if getattr(k, made.__name__, None) is made:
        return f"keras.optimizers.{made.__name__}"
    return f"{made.__module__}.{made.__name__}"


def keras_classes() -> set[str]:
    """The optimizer classes that Keras exports, but for the abstract one; as in `class_name`."""
    return {
        f"keras.optimizers.{name}"
        for name, member in vars(k).items()
        if inspect.isclass(member) and issubclass(member, k.Optimizer) and member is not k.Optimizer
    }


def legacy_classes() -> set[str]:
    """The optimizer classes that tf_keras exports, but for abstract ones; as in `class_name`."""
    return {
        f"tf_keras.{package}.{name}"
        for package in ("optimizers", "optimizers.legacy")
        for name, member in vars(_member(package)).items()
        if inspect.isclass(member) and name != "Optimizer"
    }


def _member(package: str) -> Any:
    return operator.attrgetter(package)(tf_keras)


def v1_classes() -> set[str]:
    """The optimizer classes of `tf.compat.v1.train`, but for the abstract one."""
    v1 = tf.compat.v1.train
    return {
        f"tf.compat.v1.train.{name}"
        for name, member in vars(v1).items()
        if inspect.isclass(member)
        and issubclass(member, v1.Optimizer)
        and member is not v1.Optimizer
    }
