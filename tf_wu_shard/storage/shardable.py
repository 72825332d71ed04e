"""Whether a variable can be kept in shards, and why not."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.errors import StorageError
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.tensorflow_private import resources, sharded_variables
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle, replicas_elsewhere
from tf_wu_shard.tensorflow_private.traced_only import is_traced_only

_FLOATS = {tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128}
_INTEGERS = {tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64}
_DTYPES = _FLOATS | _INTEGERS | {tf.bool}


def check(variable: Any, layout: AnyLayout) -> None:
    """Raises StorageError unless the variable can be stored in shards of this layout."""
    if (refusal := against_shards(variable)) is not None:
        raise StorageError(refusal.about(_named(variable)).reason)
    if (misfit := _misfit(variable, layout)) is not None:
        raise StorageError(f"{_named(variable)} cannot be stored in shards: {misfit}")


def check_mirrored(variable: Any) -> None:
    """Raises StorageError unless the variable is mirrored, and not in shards already."""
    if not sharded_variables.can_be_sharded(variable):
        raise StorageError(_not_mirrored(variable).about(_named(variable)).reason)


def against_shards(variable: Any) -> Refusal | None:
    """What keeps a variable, whatever it is, from being stored in shards of any layout, or None."""
    if not sharded_variables.can_be_sharded(variable):
        return _not_mirrored(variable)
    if not variable.shape.is_fully_defined():
        return refusals.Storage.OPEN_SHAPE.at(shape=str(variable.shape))
    if variable.dtype not in _DTYPES:
        return refusals.Storage.NOT_COPIED.at(dtype=variable.dtype.name)
    if is_traced_only(variable.distribute_strategy):
        return None
    if not all(sharded_variables.is_plain_component(value) for value in variable.values):
        return refusals.Storage.NOT_PLAIN.at()
    if not resources.have_values([original_handle(component) for component in variable.values]):
        return refusals.Storage.NO_VALUE.at()
    return None


def _named(variable: Any) -> str:
    return f"variable {getattr(variable, 'name', variable)!r}"


def _not_mirrored(variable: Any) -> Refusal:
    return refusals.Storage.OTHER_VARIABLE.at(type=type(variable).__name__)


def _misfit(variable: Any, layout: AnyLayout) -> str | None:
    """How a layout does not fit a variable of known shape."""
    components = len(variable.values) + replicas_elsewhere(variable)
    if components != layout.num_shards:
        return f"it has {components} components for {layout.num_shards} shards"
    if tuple(variable.shape) != layout.shape:
        return f"its shape {tuple(variable.shape)} is not the layout's {layout.shape}"
    return None
