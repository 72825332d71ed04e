"""A weight of which each replica's gradient is its input, in steps for which replicas are late."""

from __future__ import annotations

import collections
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import ShardingOptions
from tf_wu_shard.partial_sums.options import FLAG
from tf_wu_shard.storage import own_variables

SHAPE = (24, 128)
RATE, MOMENTUM = 0.5, 0.75


class LateTraining:
    """A weight after some steps."""

    def __init__(
        self, strategy: tf.distribute.Strategy, *, sharded: bool = False, partial: bool = True
    ) -> None:
        options: dict[str, Any] = {FLAG: partial, "weight_update_sharding": False}
        if sharded:
            options["weight_update_sharding"] = ShardingOptions(min_elements=1, on_refusal="raise")
        tf.config.optimizer.set_experimental_options(options)
        self._strategy = strategy
        with strategy.scope():
            self.weight = tf.Variable(tf.zeros(SHAPE), name="weight")
            self.optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
            self.optimizer.build([self.weight])
        self._step: Any = tf.function(self._all_replicas, autograph=False)

    def run(self, gradients: np.ndarray, late: np.ndarray | None) -> list[Any]:
        """Takes a step for each input.

        Args:
            gradients: [steps, replicas, *SHAPE].
            late: [steps, replicas]; None for batches that say nothing of it.

        Returns:
            What each step returned.
        """
        codes = [None] * len(gradients) if late is None else late
        return [self._step(self._each(*one)) for one in zip(gradients, codes, strict=True)]

    def _each(self, gradients: np.ndarray, late: np.ndarray | None) -> Any:
        def own(context: Any) -> Any:
            replica = context.replica_id_in_sync_group
            batch = tf.constant(gradients[replica : replica + 1])
            if late is None:
                return batch
            return tf_wu_shard.with_lateness(batch, tf.constant(late[replica : replica + 1]))

        return self._strategy.experimental_distribute_values_from_function(own)

    def _all_replicas(self, batch: Any) -> Any:
        return self._strategy.run(self.replica, (batch,))

    def replica(self, batch: tf.Tensor) -> Any:
        """What one replica does with a batch."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.weight * batch[0])
        self.optimizer.apply_gradients([(tape.gradient(loss, self.weight), self.weight)])
        return loss

    def collectives(self, *, says: bool) -> dict[str, int]:
        """How many collectives of each kind a step has.

        Args:
            says: Whether its batches say how late they are.
        """
        replicas = self._strategy.num_replicas_in_sync
        late = np.zeros((replicas,), np.int32) if says else None
        batch = self._each(np.zeros((replicas, *SHAPE), np.float32), late)
        graph = self._step.get_concrete_function(batch).graph
        types = collections.Counter(op.type for op in graph.get_operations())
        words = ("Collective", "CrossReplica", "AllReduce", "ReduceScatter", "AllGather")
        return {one: n for one, n in types.items() if any(word in one for word in words)}

    def trace_anew(self, *, another: bool = False) -> None:
        """Has the next step traced by itself, as another function if asked."""

        def one_more(batch: Any) -> Any:
            return self._all_replicas(batch)

        self._step = tf.function(one_more if another else self._all_replicas, autograph=False)

    def run_as_a_function(self, *, outer: bool) -> None:
        """Has the strategy run a tf.function from now on, within another or by itself."""
        replica = tf.function(self.replica, autograph=False)

        def all_replicas(batch: Any) -> Any:
            return self._strategy.run(replica, (batch,))

        self._step = tf.function(all_replicas, autograph=False) if outer else all_replicas

    @property
    def state(self) -> list[np.ndarray]:
        """The weight and its slots, as bits."""
        held = [self.weight, *self.optimizer.variables[2:]]
        return [value.numpy().view(np.uint32) for value in held]

    @property
    def waiting(self) -> np.ndarray:
        """What each replica still has to hand in."""
        own = own_variables.beside(self.weight, f"{FLAG}/0")
        return np.stack([value.numpy() for value in own.values()])


def random_lateness(replicas: int, steps: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of all replicas in all steps, and how late each is."""
    random = np.random.default_rng(6)
    gradients = random.standard_normal((steps, replicas, *SHAPE)).astype(np.float32)
    return gradients, random.integers(0, 4, (steps, replicas)).astype(np.int32)


def by_numpy(gradients: np.ndarray, late: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weight after training by momentum, and what each replica still has to hand in."""
    weight, momentum = np.zeros((2, *gradients.shape[2:]), np.float32)
    waiting = np.zeros_like(gradients[0])
    for own, codes in zip(gradients, late, strict=True):
        held = (codes & 1 != 0)[:, None, None]
        total = waiting + np.where((codes & 2 != 0)[:, None, None], np.float32(0), own)
        waiting = np.where(held, total, np.float32(0))
        given = np.where(held, np.float32(0), total)
        summed = given[0]
        for other in given[1:]:
            summed = summed + other
        momentum = np.float32(MOMENTUM) * momentum - summed * np.float32(RATE)
        weight = weight + momentum
    return weight, waiting
