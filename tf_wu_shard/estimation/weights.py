"""What is trained, as data: read off a built model, or from a mapping of names to shapes."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_wu_shard.dtypes import BFLOAT16, FLOAT32
from tf_wu_shard.errors import OptionError
from tf_wu_shard.unique_names import UniqueNames


@dataclasses.dataclass(frozen=True)
class TrainedWeight:
    """One weight that an optimizer trains.

    Attributes:
        name: Its name; what a Keras variable calls its path.
        shape: Its logical shape.
        dtype: Its element type's name, such as "float32".
        sparse: Whether its gradient has entries for some of its rows only.
        read_as: The element type, as a DataType number, that every layer casts it to at once; its
            own where none does.
        constraint: What Keras applies to it after the update, or None.
        overwritten: Whether Keras puts its gradient in its place, without slots.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    sparse: bool
    read_as: int
    constraint: Any = None
    overwritten: bool = False

    @property
    def type_number(self) -> int:
        """Its element type as a DataType number."""
        return number_of(self.dtype)


def number_of(dtype: str) -> int:
    """The DataType enum's number of an element type's name."""
    number: int = tf.as_dtype(dtype).as_datatype_enum
    return number


def trained_weights(
    source: Any, sparse: Collection[str] | None
) -> tuple[tuple[TrainedWeight, ...], tuple[tuple[tuple[int, ...], str], ...]]:
    """Reads what is trained.

    Args:
        source: A built Keras model or layer, or a mapping from names to shapes, or to pairs of a
            shape and an element type.
        sparse: Names of the weights with sparse gradients; None for the tables of a model's
            `keras.layers.Embedding` layers.

    Returns:
        The weights in the order in which the optimizer gets them; then shape and element type of
        every other variable that the model holds.

    Raises:
        OptionError: The model is not built, nothing is trained, a shape makes no sense, or there
            is no weight of a name in `sparse`.
    """
    others: tuple[tuple[tuple[int, ...], str], ...] = ()
    if isinstance(source, Mapping):
        found = tuple(_given(str(name), value) for name, value in source.items())
    elif isinstance(source, keras.layers.Layer):
        found, others = _of_model(source)
    else:
        raise OptionError(
            "what is trained must be a built model of Keras 3, or a mapping from names to shapes,"
            f" not {type(source).__module__}.{type(source).__qualname__}"
        )
    if not found:
        raise OptionError("nothing is trained: there is no trainable variable")
    if sparse is not None:
        unknown = set(sparse) - {weight.name for weight in found}
        if unknown:
            raise OptionError(f"no trained weight is called {', '.join(sorted(unknown))}")
        found = tuple(dataclasses.replace(w, sparse=w.name in sparse) for w in found)
    for weight in found:
        if weight.sparse and len(weight.shape) < 1:
            raise OptionError(f"{weight.name} has no rows; its gradient cannot be sparse")
    return found, others


def _given(name: str, value: Any) -> TrainedWeight:
    """A weight as a mapping says it."""
    shape, dtype = value, "float32"
    if isinstance(value, Sequence) and len(value) == 2 and not isinstance(value[0], int):
        shape, dtype = value
    try:
        sizes = tuple(operator.index(size) for size in shape)
        number = tf.as_dtype(dtype)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name} is to be a shape, or a shape and a dtype: {error}") from error
    if not name or any(size < 0 for size in sizes):
        raise OptionError(f"{name!r}: {sizes} is no shape of a weight")
    if not number.is_floating:
        raise OptionError(f"{name!r}: a weight of {number.name} has no gradient")
    return TrainedWeight(name, sizes, number.name, False, number.as_datatype_enum)


def _of_model(
    model: keras.layers.Layer,
) -> tuple[tuple[TrainedWeight, ...], tuple[tuple[tuple[int, ...], str], ...]]:
    if not model.built:
        raise OptionError(
            "the model is not built: call it on a batch, or build(input_shape), first"
        )
    tables: set[int] = set()
    narrow: set[int] = set()
    for layer in layers_of(model):
        own = layer._trainable_variables
        if isinstance(layer, keras.layers.Embedding):
            tables |= {id(variable) for variable in own}
        if layer.compute_dtype == "bfloat16":
            narrow |= {id(v) for v in own if v._autocast and v.regularizer is None}
    trained = model.trainable_variables
    found = tuple(
        TrainedWeight(
            name=name,
            shape=tuple(variable.shape),
            dtype=variable.dtype,
            sparse=id(variable) in tables,
            read_as=_read_as(variable, id(variable) in narrow),
            constraint=variable.constraint,
            overwritten=bool(variable.overwrite_with_gradient),
        )
        for name, variable in zip(_names(trained), trained, strict=True)
    )
    known = {id(variable) for variable in trained}
    others = [v for v in model.variables if id(v) not in known and v.dtype != "string"]
    return found, tuple((tuple(v.shape), v.dtype) for v in others)


def _read_as(variable: keras.Variable, narrow: bool) -> int:
    own = number_of(variable.dtype)
    return BFLOAT16 if narrow and own == FLOAT32 else own


def layers_of(model: keras.layers.Layer) -> Iterable[keras.layers.Layer]:
    """A model's layers, those of nested models too, the model itself first."""
    layers: Iterable[keras.layers.Layer] = model._flatten_layers()
    return layers


def _names(variables: Iterable[keras.Variable]) -> list[str]:
    """The variables' paths, numbered where two have the same."""
    names = UniqueNames()
    return [names.take(variable.path) for variable in variables]
