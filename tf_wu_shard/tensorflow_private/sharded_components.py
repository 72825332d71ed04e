"""The class that the components of a mirrored variable take on when its storage is sharded.

Answers: every read and write that Python code does at once (eagerly) goes to the storage behind
the variable and sees or leaves one whole logical value, as before. While a function is being
traced the same calls emit the same ops on the same handle as an unsharded variable's; lowering
them onto the shards is a graph pass's work, not done here.

The original resource no longer holds a value. Eager code that asks for its handle gets a
`ClosedHandle`, which no op accepts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.trackable import base as trackable

from tf_wu_shard.errors import StorageError
from tf_wu_shard.tensorflow_private.closed_handles import ClosedHandle
from tf_wu_shard.tensorflow_private.distributed_variables import (
    active_replica,
    is_traced_function,
    original_handle,
    runs_eagerly,
)


class Storage(Protocol):
    """What the classes here need of the storage behind a variable.

    `replica` is the replica whose component is used; None when the access is about the value of
    the variable as a whole.
    """

    def read(self, replica: int | None) -> tf.Tensor:
        """The whole value, logical shape."""
        ...

    def write(self, replica: int | None, change: Callable[[tf.Tensor], tf.Tensor]) -> None:
        """Replaces the whole value by a function of it."""
        ...

    def write_elementwise(self, replica: int | None, method: str, operand: tf.Tensor) -> None:
        """Calls `assign`, `assign_add` or `assign_sub` with an operand of the logical shape."""
        ...


class _ComponentSpec(resource_variable_ops.VariableSpec):
    """Type spec under which `tf.nest` takes a component apart and finds it again."""

    @property
    def value_type(self) -> type:
        return ShardedComponent

    def _to_components(self, value: ShardedComponent) -> list[Any]:
        return [original_handle(value)]

    def _from_components(self, components: Any) -> Any:
        parent = getattr(components[0], "_parent_trackable", None)
        component = parent() if parent is not None else None
        if isinstance(component, ShardedComponent):
            return component
        return super()._from_components(components)


class _Whole(threading.local):
    """Whether this thread uses a component as the representative of its variable."""

    meant = False


_whole = _Whole()


@contextlib.contextmanager
def as_whole() -> Iterator[None]:
    """While it lasts, what is done to one component is done to the value of all."""
    before, _whole.meant = _whole.meant, True
    try:
        yield
    finally:
        _whole.meant = before


def _written_through(method: str) -> Callable[..., Any]:
    """A method that changes the value by calling the ordinary one on a temporary variable."""
    ordinary = getattr(resource_variable_ops.ResourceVariable, method)

    def run(self: ShardedComponent, *args: Any, **kwargs: Any) -> Any:
        if not self._acts_at_once():
            return ordinary(self, *args, **kwargs)
        results: list[Any] = []

        def change(whole: tf.Tensor) -> tf.Tensor:
            with tf.device(self.device):
                temporary = resource_variable_ops.ResourceVariable(whole, trainable=False)
                results.append(getattr(temporary, method)(*args, **kwargs))
                return temporary.value()

        with record.stop_recording():
            self._storage.write(self._own_replica(), change)
        returned = results[0]
        return (
            self if isinstance(returned, resource_variable_ops.BaseResourceVariable) else returned
        )

    run.__name__ = method
    run.__doc__ = ordinary.__doc__
    return run


class ShardedComponent(resource_variable_ops.ResourceVariable):
    """One replica's component of a mirrored variable whose value lives in shards."""

    _storage: Storage
    _replica: int
    _closed_handle: ClosedHandle

    def _acts_at_once(self) -> bool:
        """True in eager code; False while a function is traced, where ordinary ops are emitted."""
        if runs_eagerly():
            return True
        if is_traced_function():
            return False
        raise StorageError(
            f"variable {self.name!r} lives in shards and cannot be used in a TensorFlow 1 graph;"
            " use it eagerly or inside a tf.function"
        )

    def _own_replica(self) -> int | None:
        return None if _whole.meant else self._replica

    def _reading_replica(self) -> int | None:
        """As `_own_replica`; outside the replicas the first component answers for the variable."""
        if self._replica == 0 and active_replica(self._distribute_strategy) is None:
            return None
        return self._own_replica()

    @property
    def _handle(self) -> Any:
        return self._closed_handle if runs_eagerly() else original_handle(self)

    @property
    def handle(self) -> Any:
        """The resource handle for a traced function; a `ClosedHandle` for eager code."""
        return self._handle

    @property
    def _type_spec(self) -> _ComponentSpec:
        return _ComponentSpec(self.shape, self.dtype, self.trainable)

    def __tf_tracing_type__(self, signature_context: Any) -> Any:
        # TensorFlow makes a plain variable's handle an argument, out of reach of a graph pass.
        raise StorageError(
            f"a component of variable {self.name!r}, which lives in shards, was given to a"
            " tf.function as an argument; give the mirrored variable itself, or let the function"
            " use the component without taking it as an argument"
        )

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        if not self._acts_at_once():
            return super()._read_variable_op(no_copy)
        resource_variable_ops.variable_accessed(self)
        with record.stop_recording(), tf.device(self.device):
            result = self._storage.read(self._reading_replica())
        record.record_operation(
            "ReadVariableOp",
            [result],
            [original_handle(self)],
            backward_function=lambda gradient: [gradient],
            forward_function=lambda tangent: [tangent],
        )
        return result

    def sparse_read(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Gathers rows of the value; see `tf.Variable.sparse_read`.

        A traced function reads the value and gathers from it, in two ordinary ops: the fused op
        works on the storage itself, and the storage is in pieces.
        """
        return tf.gather(self._read_variable_op(), indices, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Gathers slices of the value; see `tf.Variable.gather_nd` and `sparse_read` here."""
        return tf.gather_nd(self._read_variable_op(), indices, name=name)

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        """A boolean scalar; true in eager code, as only initialised variables are sharded."""
        if not self._acts_at_once():
            return super().is_initialized(name=name)
        return tf.constant(True, name=name)

    def assign(
        self, value: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        """Replaces the value; see `tf.Variable.assign`."""
        if not self._acts_at_once():
            return super().assign(value, use_locking, name, read_value)
        tensor = tf.convert_to_tensor(value, self.dtype)
        if not self.shape.is_compatible_with(tensor.shape):
            raise ValueError(
                f"Cannot assign value to variable '{self.name}': Shape mismatch. The variable"
                f" shape {self.shape}, and the assigned value shape {tensor.shape} are"
                " incompatible."
            )
        return self._write_elementwise("assign", tensor, read_value)

    def assign_add(
        self, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        """Adds to the value; see `tf.Variable.assign_add`."""
        if not self._acts_at_once():
            return super().assign_add(delta, use_locking, name, read_value)
        return self._write_delta("assign_add", delta, read_value)

    def assign_sub(
        self, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        """Subtracts from the value; see `tf.Variable.assign_sub`."""
        if not self._acts_at_once():
            return super().assign_sub(delta, use_locking, name, read_value)
        return self._write_delta("assign_sub", delta, read_value)

    def _write_delta(self, method: str, delta: Any, read_value: bool) -> Any:
        tensor = tf.convert_to_tensor(delta, self.dtype)
        if tensor.shape != self.shape:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"Cannot update variable with shape {self.shape} using a Tensor with shape"
                f" {tensor.shape}, shapes must be equal.",
            )
        return self._write_elementwise(method, tensor, read_value)

    def _write_elementwise(self, method: str, operand: tf.Tensor, read_value: bool) -> Any:
        with record.stop_recording():
            self._storage.write_elementwise(self._own_replica(), method, operand)
        return self if read_value else None

    scatter_sub = _written_through("scatter_sub")
    scatter_add = _written_through("scatter_add")
    scatter_max = _written_through("scatter_max")
    scatter_min = _written_through("scatter_min")
    scatter_mul = _written_through("scatter_mul")
    scatter_div = _written_through("scatter_div")
    scatter_update = _written_through("scatter_update")
    batch_scatter_update = _written_through("batch_scatter_update")
    scatter_nd_sub = _written_through("scatter_nd_sub")
    scatter_nd_add = _written_through("scatter_nd_add")
    scatter_nd_update = _written_through("scatter_nd_update")
    scatter_nd_max = _written_through("scatter_nd_max")
    scatter_nd_min = _written_through("scatter_nd_min")
    count_up_to = _written_through("count_up_to")
    _strided_slice_assign = _written_through("_strided_slice_assign")

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> Any:
        if not self._acts_at_once():
            return super()._restore_from_tensors(restored_tensors)
        return self.assign(restored_tensors[trackable.VARIABLE_VALUE_KEY], read_value=False)


def storage_of(handle: Any) -> Any:
    """The storage of the live component that an original handle belongs to; None if unsharded."""
    parent = getattr(handle, "_parent_trackable", None)
    component = parent() if parent is not None else None
    return component._storage if isinstance(component, ShardedComponent) else None
