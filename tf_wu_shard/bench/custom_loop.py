"""Training on several workers in a custom loop, as `fit` of Keras 3 does not run there.

Answers: the function that takes a step, as a user would write it, whether all workers hold the same
after it, and when they voted on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.workers.cluster import worker_cluster


def train_function(
    strategy: tf.distribute.Strategy,
    model: Any,
    optimizer: Any,
    loss: Callable[[Any, Any], tf.Tensor],
    signature: Sequence[tf.TensorSpec] | None = None,
) -> Callable[..., tf.Tensor]:
    """Returns a function of (inputs, targets) that takes a step and returns this worker's loss.

    Args:
        strategy: What the model was made under; a replica a worker.
        model: A Keras model.
        optimizer: Its optimizer, built.
        loss: Of (targets, outputs); Keras's own divide by the number of replicas, so that losses
            and gradients of all workers sum up to those of the global batch.
        signature: What the inputs and targets of any step are; None takes what comes, and traces
            anew for another shape.
    """

    def replica(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(targets, model(inputs, training=True))
        weights = model.trainable_variables
        gradients = tape.gradient(value, [weight.value for weight in weights])
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return value

    @tf.function(input_signature=signature)
    def train(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica, (inputs, targets))

    return train


def votes(strategy: tf.distribute.Strategy) -> list[tuple[float, float]]:
    """When this worker came to each vote with the others, and when it knew the decision.

    Args:
        strategy: The one that it trains under.

    Returns:
        Seconds of `time.monotonic`, oldest vote first; empty where nothing was voted on.
    """
    return [(vote.begun, vote.ended) for vote in worker_cluster(strategy).votes]


def digest(variables: Iterable[Any]) -> str:
    """What differs between workers if a bit of a variable does: a SHA-256 in hexadecimal digits."""
    found = hashlib.sha256()
    for variable in variables:
        found.update(np.ascontiguousarray(variable.numpy()).tobytes())
    return found.hexdigest()
