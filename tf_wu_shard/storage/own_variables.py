"""Variables that each replica has of its own beside one of the model's.

What a pass wants to remember between steps, and no replica shares: what was rounded away, what came
too late. They last as long as the variable that they stand beside, and are the same for every
trace. They are no slots: a checkpoint holds of them what their pass sees to.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.tensorflow_private import resources

# Where a distributed variable keeps them: it is to own them, and cannot be a key.
_ATTRIBUTE = "_wu_shard_own_variables"

# Two threads may trace functions of one variable.
_lock = threading.Lock()


class OwnVariables:
    """One variable a replica, on its device, of one shape and type."""

    def __init__(
        self,
        like: Any,
        shape: Sequence[int | None] | None = None,
        dtype: Any = None,
        fill: float = 0.0,
    ) -> None:
        """Makes them.

        Args:
            like: A distributed variable, on whose devices they are to be.
            shape: Their shape; None for the variable's, which is to be known. A dimension that is
                None may have any size, and has none at first.
            dtype: Their element type; None for the variable's.
            fill: What all their elements are at first.
        """
        shape = tuple(like.shape if shape is None else shape)
        dtype = tf.as_dtype(dtype or like.dtype)
        self._shards = tuple(
            resources.Shard(shape, dtype, component.device) for component in like.values
        )
        self._shape, self._dtype, self._fill = shape, dtype, fill
        self.restart()

    def restart(self, first: np.ndarray | None = None) -> None:
        """Gives them the values that they had at first.

        Args:
            first: What to give to the first replica's instead.

        Raises:
            ValueError: It has another shape than they have.
        """
        with tf.init_scope():
            # Of a number TensorFlow keeps a tensor, and takes 0.0 and -0.0 for the same number.
            sizes = [size or 0 for size in self._shape]
            nothing = tf.constant(np.full(sizes, self._fill, self._dtype.as_numpy_dtype))
            new = [nothing] * len(self._shards)
            if first is not None:
                new[0] = tf.cast(tf.constant(first), self._dtype)
                if not new[0].shape.is_compatible_with(self._shape):
                    raise ValueError(f"{first.shape} is not {self._shape}")
            resources.refill(self.handles, new)

    @property
    def handles(self) -> tuple[tf.Tensor, ...]:
        """Their resource handles, eager tensors, by replica."""
        return tuple(shard.handle for shard in self._shards)

    @functools.cached_property
    def packed_handle(self) -> tf.Tensor:
        """One handle for all, of which an op on a replica's device sees that replica's."""
        return resources.packed(self.handles)

    def values(self) -> list[tf.Tensor]:
        """What each replica's holds, in the order of the replicas."""
        with tf.init_scope():
            return [shard.value() for shard in self._shards]


def beside(
    variable: Any,
    name: str,
    shape: Sequence[int | None] | None = None,
    dtype: Any = None,
    fill: float = 0.0,
) -> OwnVariables:
    """The variables of one name that replicas have beside a variable; made when first asked for.

    Args:
        variable: A distributed variable.
        name: Which of them; a pass uses its own name.
        shape: Their shape; None for the variable's, which is to be known. A dimension that is None
            may have any size, and has none at first.
        dtype: Their element type; None for the variable's.
        fill: What all their elements are at first.
    """
    with _lock:
        found: dict[str, OwnVariables] = variable.__dict__.setdefault(_ATTRIBUTE, {})
        if name not in found:
            found[name] = OwnVariables(variable, shape, dtype, fill)
        return found[name]
