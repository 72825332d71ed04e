"""Which trainables there are, and how each is built, fed and scored.

The one table that tests, demo and benchmarks look models up in; it checks names and arguments, so
that a typing error is one clear line and not a trace through Keras.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tf_wu_shard.errors import OptionError
from tf_wu_shard.models.conv import conv, conv_batchnorm, images_data
from tf_wu_shard.models.digits import digits, digits_data
from tf_wu_shard.models.embedding import dense_embedding, sparse_embedding, tokens_data
from tf_wu_shard.models.mlp import mlp, mlp_data
from tf_wu_shard.models.odd_shapes import odd_shapes, odd_shapes_data
from tf_wu_shard.models.transformer_lm import transformer_lm, transformer_lm_data
from tf_wu_shard.models.transformer_sizes import (
    transformer_base,
    transformer_big,
    transformer_data,
    transformer_small,
    transformer_small_data,
)

Arrays = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class _Trainable:
    build: Callable[..., keras.Model]
    data: Callable[..., Arrays]
    classifies: bool


_TRAINABLES = {
    "mlp": _Trainable(mlp, mlp_data, classifies=False),
    "odd_shapes": _Trainable(odd_shapes, odd_shapes_data, classifies=True),
    "conv": _Trainable(conv, images_data, classifies=True),
    "conv_batchnorm": _Trainable(conv_batchnorm, images_data, classifies=True),
    "dense_embedding": _Trainable(dense_embedding, tokens_data, classifies=True),
    "sparse_embedding": _Trainable(sparse_embedding, tokens_data, classifies=True),
    "transformer_lm": _Trainable(transformer_lm, transformer_lm_data, classifies=True),
    "transformer_small": _Trainable(transformer_small, transformer_small_data, classifies=True),
    "transformer_base": _Trainable(transformer_base, transformer_data, classifies=True),
    "transformer_big": _Trainable(transformer_big, transformer_data, classifies=True),
    "digits": _Trainable(digits, digits_data, classifies=True),
}


def names() -> tuple[str, ...]:
    """The names that `build`, `data` and `loss` know."""
    return tuple(_TRAINABLES)


def build(name: str, **sizes: Any) -> keras.Model:
    """Builds a model.

    Args:
        name: One of `names`.
        sizes: Arguments of the model's builder, such as its width; all are optional.

    Returns:
        A new model, not compiled.

    Raises:
        OptionError: An unknown name, a size the model does not have, or one that is out of range.
    """
    trainable = _trainable(name)
    _check_sizes(name, trainable.build, sizes)
    return trainable.build(**sizes)


def data(name: str, examples: int, seed: int = 0, **sizes: Any) -> Arrays:
    """Makes data that fit a model.

    Args:
        name: One of `names`.
        examples: How many rows.
        seed: The same data come of the same seed.
        sizes: The sizes that `build` was given. What only shapes the model, such as its depth,
            changes nothing.

    Returns:
        Inputs and targets, arrays of `examples` rows each, of the shapes and dtypes that the model
        takes and its loss compares.

    Raises:
        OptionError: An unknown name, a size the model does not have, or one that is out of range.
    """
    trainable = _trainable(name)
    taken = inspect.signature(trainable.data).parameters
    of_data = {size: value for size, value in sizes.items() if size in taken}
    of_model = {size: value for size, value in sizes.items() if size not in taken}
    _check_sizes(name, trainable.data, {"examples": examples, **of_data})
    _check_sizes(name, trainable.build, of_model)
    return trainable.data(examples, seed=seed, **of_data)


def loss(name: str) -> keras.losses.Loss:
    """Makes the loss that fits a model's outputs and targets.

    An object, as a model compiled with a loss given as a string cannot be reloaded from .h5.

    Args:
        name: One of `names`.

    Raises:
        OptionError: An unknown name.
    """
    if _trainable(name).classifies:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.MeanSquaredError()


def _trainable(name: str) -> _Trainable:
    if name not in _TRAINABLES:
        raise OptionError(f"no model is called {name!r}; choose one of {', '.join(_TRAINABLES)}")
    return _TRAINABLES[name]


def _check_sizes(name: str, function: Callable[..., object], sizes: dict[str, Any]) -> None:
    """Refuses what the function does not take, and counts that are not positive integers."""
    parameters = inspect.signature(function).parameters
    for size, value in sizes.items():
        if size not in parameters:
            known = ", ".join(sorted(set(parameters) - {"seed"}))
            raise OptionError(f"model {name!r} has no argument {size!r}; it takes {known}")
        counts = parameters[size].annotation is int
        if counts and (type(value) is not int or value < 1):
            raise OptionError(f"model {name!r}: {size} must be an integer of at least 1: {value!r}")
