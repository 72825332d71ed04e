"""How a mirrored variable as a whole behaves when its components are sharded.

Answers: how the variable and its components change their classes and change them back; how writes
and restores from outside the replicas reach the storage once instead of once for each component;
how it is copied. What one component does is in `sharded_components`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import tpu_values, values
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.trackable import base as trackable

from tf_wu_shard.tensorflow_private import gradual_saves
from tf_wu_shard.tensorflow_private.closed_handles import ClosedHandle
from tf_wu_shard.tensorflow_private.distributed_variables import runs_eagerly
from tf_wu_shard.tensorflow_private.sharded_components import ShardedComponent, Storage, as_whole

# An optimizer of tf.compat.v1.train makes its slots while the first step is traced; they then are
# of the second class for good, and behave alike once they have a value.
_PLAIN_CLASSES = (
    resource_variable_ops.ResourceVariable,
    polymorphic_function.UnliftedInitializerVariable,
)


class _ShardedSaveable(values._MirroredSaveable):
    """Restores a sharded variable with one write of the whole, not one for each component."""

    def __init__(self, variable: Any, primary: Any, name: str) -> None:
        super().__init__(variable, primary, name)
        gradual_saves.mark(self.specs, variable.shape.num_elements() * variable.dtype.size)

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
        if not runs_eagerly():
            return super().restore(restored_tensors, restored_shapes)
        (tensor,) = restored_tensors
        with as_whole():
            return self._mirrored_variable._primary.assign(tensor, read_value=False)


class _Sharded(values.DistributedVariable):
    """What a mirrored variable does otherwise once its components are `ShardedComponent`s."""

    _plain: type

    def __repr__(self) -> str:
        return super().__repr__().replace(type(self).__name__, self._plain.__name__, 1)

    def __str__(self) -> str:
        return super().__str__().replace(type(self).__name__, self._plain.__name__, 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = super().__deepcopy__(memo)
        copied.__class__ = self._plain
        return copied

    def _update_cross_replica(self, update_fn: Any, value: Any, **kwargs: Any) -> Any:
        mirrored = isinstance(value, values.Mirrored)
        differs = isinstance(value, values.DistributedValues) and not mirrored
        if not runs_eagerly() or differs:
            return super()._update_cross_replica(update_fn, value, **kwargs)
        # One write of the whole instead of one for each component.
        with as_whole():
            updated = update_fn(self._primary, value.values[0] if mirrored else value, **kwargs)
            if updated is None:
                return None
            whole = tf.convert_to_tensor(updated)
        return values.Mirrored([whole] * len(self.values)) if len(self.values) > 1 else whole

    def _gather_saveables_for_checkpoint(self) -> dict[str, Callable[..., Any]]:
        def saveable(name: str = self._common_name) -> _ShardedSaveable:
            return _ShardedSaveable(self, self._primary, name)

        return {trackable.VARIABLE_VALUE_KEY: saveable}

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        if self in object_map and not runs_eagerly():
            storage = self._primary._storage
            with tf.device(object_map[self].device):
                object_map[self].assign(storage.read(None))
            return
        super()._copy_trackable_to_cpu(object_map)


class ShardedMirroredVariable(_Sharded, values.MirroredVariable):
    """A variable of MirroredStrategy whose value lives in shards."""

    _plain = values.MirroredVariable


def _through_components(method: str) -> Callable[..., Any]:
    """A method that calls the components' own; TensorFlow's runs ops on their handles."""
    ordinary = getattr(tpu_values.TPUDistributedVariable, method)

    @functools.wraps(ordinary)
    def run(
        self: Any, value: Any, use_locking: Any = False, name: Any = None, read_value: bool = True
    ) -> Any:
        if not runs_eagerly():
            return ordinary(self, value, use_locking, name, read_value)
        return self._update(
            lambda component, *args, **kwargs: getattr(component, method)(*args, **kwargs),
            value,
            use_locking=use_locking,
            name=name,
            read_value=read_value,
        )

    return run


class ShardedTPUVariable(_Sharded, tpu_values.TPUDistributedVariable):
    """A variable of TPUStrategy whose value lives in shards."""

    _plain = tpu_values.TPUDistributedVariable

    assign = _through_components("assign")
    assign_add = _through_components("assign_add")
    assign_sub = _through_components("assign_sub")


_SHARDED = {kind._plain: kind for kind in (ShardedMirroredVariable, ShardedTPUVariable)}


def can_be_sharded(variable: Any) -> bool:
    """Whether a variable is of a kind that `become_sharded` knows, and is not sharded yet."""
    return type(variable) in _SHARDED and bool(variable._is_mirrored())


def is_in_shards(handle: Any) -> bool:
    """Whether a handle's variable is sharded; very cheap."""
    reference = getattr(handle, "_distributed_container", None)
    return reference is not None and isinstance(reference(), _Sharded)


def is_plain_component(component: Any) -> bool:
    """Whether a component is an ordinary eager variable that can be sharded."""
    return (
        type(component) in _PLAIN_CLASSES
        and not component._in_graph_mode
        and component._cached_value is None
    )


def become_sharded(variable: Any, storage: Storage) -> None:
    """Changes the classes of a mirrored variable and its components; storage answers from now on.

    Args:
        variable: One that `can_be_sharded`, of plain components.
        storage: What the components read and write.
    """
    for replica, component in enumerate(variable.values):
        state = vars(component)
        state["_storage"] = storage
        state["_replica"] = replica
        state["_closed_handle"] = ClosedHandle(state["_handle"], component.name)
        state["_plain_class"] = type(component)
        component.__class__ = ShardedComponent
    variable.__class__ = _SHARDED[type(variable)]


def become_plain(variable: Any) -> None:
    """Undoes `become_sharded`; the components' own resources answer from now on."""
    variable.__class__ = variable._plain
    for component in variable.values:
        component.__class__ = vars(component)["_plain_class"]
        for name in ("_storage", "_replica", "_closed_handle", "_plain_class"):
            del vars(component)[name]
