"""What the copies of a mirrored variable hold, one for each replica, as long as it lives whole.

A strategy keeps them equal only by having every replica write the same; nothing holds it to that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.tensorflow_private import resources, sharded_variables
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.tensorflow_private.traced_only import is_traced_only

_WITHOUT_VALUES = frozenset({tf.variant, tf.resource})


def which_differ(variables: Iterable[Any]) -> list[bool]:
    """Of which variables copies in this process, or on the first host of several, differ in bits.

    Args:
        variables: Distributed variables. Of one that is in shards, has no value yet or is never
            run there is nothing to compare.
    """
    # Once for all, as to leave the function that is being traced takes its time.
    with tf.init_scope():
        return [not _are_equal(_values(variable)) for variable in variables]


def _are_equal(values: Sequence[tf.Tensor]) -> bool:
    return all(
        value.shape == values[0].shape and resources.same_bits(values[0], value)
        for value in values[1:]
    )


def digest(variables: Sequence[Any]) -> str:
    """What is equal in processes whose first copies of some variables hold the same bits.

    Args:
        variables: Distributed variables, in one order in all processes.
    """
    found = hashlib.sha256()
    for variable in variables:
        for value in _values(variable)[:1]:
            found.update(repr(value.shape).encode())
            found.update(resources.bits(value))
    return found.hexdigest()[:16]


def _host(handle: Any) -> str:
    return str(handle.device).rpartition("/device:")[0]


def _values(variable: Any) -> list[tf.Tensor]:
    """What a variable's copies hold, where that can be compared; else nothing."""
    components = getattr(variable, "values", ())
    if not components or is_traced_only(variable.distribute_strategy):
        return []
    handles = [original_handle(component) for component in components]
    first = handles[0]
    # A variable of a graph that a session runs has no value of its own.
    if not isinstance(first, tf.__internal__.EagerTensor) or sharded_variables.is_in_shards(first):
        return []
    # Elsewhere they are read over a network, as with TPUs of several hosts.
    handles = [handle for handle in handles if _host(handle) == _host(first)]
    # All are assigned their first value together.
    if variable.dtype in _WITHOUT_VALUES or not resources.have_values([first]):
        return []
    values = resources.values_of(handles, variable.dtype)
    if variable.dtype != tf.string:
        return values
    # Texts are compared as they are written to a file.
    with tf.init_scope():
        return [tf.io.decode_raw(tf.io.serialize_tensor(value), tf.uint8) for value in values]
