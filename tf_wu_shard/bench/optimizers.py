"""The optimizers a benchmark can use, by name, and how many slots each keeps for a weight.

Answers: what to compile a model with, and S of the bytes that its update must move. A slot is an
optimizer variable as large as the weight; step counters and other scalars cost nothing here.
"""

from __future__ import annotations

from typing import Any

SLOTS = {
    "sgd": 0,
    "momentum": 1,
    "nesterov": 1,
    "adam": 2,
    "amsgrad": 3,
    "adamw": 2,
    "adamax": 2,
    "nadam": 2,
    "rmsprop": 1,
    "centered_rmsprop": 2,
    "adagrad": 1,
    "adadelta": 2,
    "ftrl": 2,
    "lion": 1,
    "lamb": 2,
}

# All that `make` knows; these keep other things for a weight than slots of its size.
NAMES = (*SLOTS, "adafactor", "muon", "schedule_free_adamw")

# Where the name is not simply the class's in lower case: the class, and its arguments.
_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "momentum": ("sgd", {"momentum": 0.9}),
    "nesterov": ("sgd", {"momentum": 0.9, "nesterov": True}),
    "amsgrad": ("adam", {"amsgrad": True}),
    "centered_rmsprop": ("rmsprop", {"centered": True}),
    "schedule_free_adamw": ("schedulefreeadamw", {}),
}


def make(name: str, epsilon: float | None = None) -> Any:
    """Returns a new Keras optimizer with Keras's defaults.

    Args:
        name: One of `NAMES`.
        epsilon: Its argument of that name, for those that have one; None leaves the default.
    """
    import keras

    identifier, arguments = _VARIANTS.get(name, (name, {}))
    if epsilon is not None:
        arguments = arguments | {"epsilon": epsilon}
    # Not keras.optimizers.get, which does not know Lamb.
    classes = {name.lower(): name for name in dir(keras.optimizers)}
    return getattr(keras.optimizers, classes[identifier])(**arguments)
