"""Every optimizer of tf_keras, the Keras before version 3: its own, and those it calls legacy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tf_keras

from tests.equivalence.optimizers import Recipe

o = tf_keras.optimizers
v2 = tf_keras.optimizers.legacy


def _recipe(make: Callable[..., Any], slots: int, **arguments: Any) -> Recipe:
    return Recipe(lambda **more: make(**(arguments | more)), slots, legacy=True)


LEGACY: dict[str, Recipe] = {
    "tf_keras_sgd": _recipe(o.SGD, 0, learning_rate=0.05),
    "tf_keras_momentum": _recipe(o.SGD, 1, learning_rate=0.05, momentum=0.9),
    "tf_keras_adam": _recipe(o.Adam, 2, learning_rate=0.01),
    "tf_keras_amsgrad": _recipe(o.Adam, 3, learning_rate=0.01, amsgrad=True),
    "tf_keras_adamw": _recipe(o.AdamW, 2, learning_rate=0.01),
    "tf_keras_adamax": _recipe(o.Adamax, 2, learning_rate=0.01),
    "tf_keras_nadam": _recipe(o.Nadam, 2, learning_rate=0.01),
    "tf_keras_rmsprop": _recipe(o.RMSprop, 1, learning_rate=0.01),
    "tf_keras_centered_rmsprop": _recipe(
        o.RMSprop, 3, learning_rate=0.01, centered=True, momentum=0.9
    ),
    "tf_keras_adagrad": _recipe(o.Adagrad, 1, learning_rate=0.05),
    "tf_keras_adadelta": _recipe(o.Adadelta, 2, learning_rate=1.0),
    "tf_keras_ftrl": _recipe(o.Ftrl, 2, learning_rate=0.05),
    "tf_keras_lion": _recipe(o.Lion, 1, learning_rate=0.005),
    "tf_keras_adafactor": _recipe(o.Adafactor, 0, learning_rate=0.05),
    "tf_keras_legacy_sgd": _recipe(v2.SGD, 0, learning_rate=0.05),
    "tf_keras_legacy_nesterov": _recipe(v2.SGD, 1, learning_rate=0.05, momentum=0.9, nesterov=True),
    "tf_keras_legacy_adam": _recipe(v2.Adam, 2, learning_rate=0.01),
    "tf_keras_legacy_amsgrad": _recipe(v2.Adam, 3, learning_rate=0.01, amsgrad=True),
    "tf_keras_legacy_adamax": _recipe(v2.Adamax, 2, learning_rate=0.01),
    "tf_keras_legacy_nadam": _recipe(v2.Nadam, 2, learning_rate=0.01),
    "tf_keras_legacy_rmsprop": _recipe(v2.RMSprop, 1, learning_rate=0.01),
    "tf_keras_legacy_centered_rmsprop": _recipe(
        v2.RMSprop, 3, learning_rate=0.01, centered=True, momentum=0.9
    ),
    "tf_keras_legacy_adagrad": _recipe(v2.Adagrad, 1, learning_rate=0.05),
    "tf_keras_legacy_adadelta": _recipe(v2.Adadelta, 2, learning_rate=1.0),
    "tf_keras_legacy_ftrl": _recipe(v2.Ftrl, 2, learning_rate=0.05),
}
