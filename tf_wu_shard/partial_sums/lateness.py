"""What a batch says of its replica: whether it is one at all, and whether its gradient is in time.

Every example carries its batch's number, so that the numbers go through whatever cuts batches into
those of the replicas. They travel beside the batch's first tensor, as one value with it: whoever
looks at the batch, such as Keras, finds as many inputs and labels as without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_wu_shard.errors import WuShardError

# In time: the batch is real, and so is what the replica hands in.
FRESH = 0
# The sum does not get what the replica has; that is added to what it hands in next.
HELD = 1
# The batch only stands in for one that is not there: nothing of it may be seen.
STAND_IN = 2


def _shape(self: Any) -> tf.TensorShape:
    """The shape of the tensor inside, or of its spec, as Keras asks for it."""
    return self.value.shape


def _dtype(self: Any) -> tf.DType:
    """The element type of the tensor inside, or of its spec."""
    return self.value.dtype


class LateTensor(tf.experimental.BatchableExtensionType):
    """The first tensor of a batch, and what the batch says of its replica.

    Attributes:
        value: The tensor.
        late: int32, a number for each example.
    """

    # By name, as TensorFlow finds a type again in a saved function.
    __name__ = "tf_wu_shard.LateTensor"

    value: tf.Tensor
    late: tf.Tensor

    shape = property(_shape)
    dtype = property(_dtype)

    class Spec:
        """What is known of one before it is there."""

        if TYPE_CHECKING:
            value: tf.TensorSpec

        shape = property(_shape)
        dtype = property(_dtype)

        def _create_empty_value(self) -> LateTensor:
            """What a strategy gives a replica for which there are no examples left."""
            shape = [0, *(size or 0 for size in self.value.shape[1:])]
            value = tf.zeros(shape, self.value.dtype)
            return LateTensor(value, tf.zeros([0], tf.int32))


def with_lateness(element: Any, late: Any) -> Any:
    """A batch with what a replica that gets it does about the sums of gradients.

    `deadline_dataset` calls it. A dataset of your own may, too, in `map`, in order to try what
    lateness does to a training, with the flag `partial_gradient_sums`. `Strategy.run` takes the
    batch as it was out of it again, and so does `model.fit`.

    Args:
        element: A batch: every tensor has examples along its first axis.
        late: int32, one number for each example, the same for all that one replica gets: 0 is in
            time; 1 is a batch whose gradient comes too late for this step's sum, and is added to
            what the replica hands in next; 3 is no batch, of which nothing is seen, and nothing is
            handed in; 2 is no batch either, but what the replica still has is handed in.

    Returns:
        The batch, with a value in the place of its first tensor that holds both.

    Raises:
        WuShardError: The batch has no dense tensor.
    """
    flat = tf.nest.flatten(element)
    first = next((i for i, one in enumerate(flat) if isinstance(one, tf.Tensor)), None)
    if first is None:
        raise WuShardError(f"a batch without a dense tensor cannot say how late it is: {element}")
    flat[first] = LateTensor(flat[first], tf.cast(late, tf.int32))
    return tf.nest.pack_sequence_as(element, flat)
