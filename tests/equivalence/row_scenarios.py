"""Embeddings trained by optimizers that look up rows of what they update, or decay it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from tests.equivalence import row_branches
from tests.equivalence.embedding import BATCHES, KERAS, V1, Optimizer, train_embedding
from tests.equivalence.nested_scenarios import Left, Scenario
from tests.equivalence.net import OUTPUTS, WIDTH, Net
from tests.equivalence.tf_keras_scenarios import LegacyNet


class ClippedByRows(tf_keras.optimizers.Optimizer):
    """Adagrad whose step is shrunk so that no element moves by more than a share of itself.

    Of a sparse gradient it looks at the rows that were looked up alone, of weight and accumulator.
    """

    def __init__(self, rate: float = 0.1, share: float = 0.5, least: float = 0.01) -> None:
        super().__init__(name="ClippedByRows")
        self._learning_rate = self._build_learning_rate(rate)
        self._share = share
        self._least = least

    def build(self, var_list: Any) -> None:
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._built = True
        self._accumulators = [
            self.add_variable_from_reference(
                v, "accumulator", initial_value=tf.fill(v.shape, tf.constant(0.1, v.dtype))
            )
            for v in var_list
        ]

    def update_step(self, gradient: Any, variable: Any) -> None:
        rate = tf.cast(self.learning_rate, variable.dtype)
        accumulator = self._accumulators[self._index_dict[self._var_key(variable)]]
        if not isinstance(gradient, tf.IndexedSlices):
            accumulator.assign_add(gradient * gradient)
            step = rate * gradient / tf.sqrt(accumulator)
            variable.assign_sub(self._shrunk(step, variable))
            return
        rows = gradient.indices
        squares = tf.IndexedSlices(gradient.values * gradient.values, rows)
        accumulator.scatter_add(squares)
        step = rate * gradient.values / tf.sqrt(tf.gather(accumulator, rows))
        less = self._shrunk(step, tf.gather(variable, rows))
        variable.scatter_sub(tf.IndexedSlices(less, rows))

    def _shrunk(self, step: tf.Tensor, present: Any) -> tf.Tensor:
        most = self._share * tf.abs(present) + self._least
        fits = tf.where(tf.equal(step, 0.0), tf.ones_like(step), most / tf.abs(step))
        return step * tf.minimum(1.0, tf.reduce_min(fits))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": 0.1}


class DecayedAdam(tf_keras.optimizers.legacy.Adam):
    """Adam of the Keras before 2.11, which takes a share of each weight away before its step."""

    def __init__(self, rate: float = 0.01, decay: float = 0.1) -> None:
        super().__init__(rate, name="DecayedAdam")
        self._share = decay

    def _decayed(self, variable: Any, state: Any) -> Any:
        place = (variable.device, variable.dtype.base_dtype)
        rate = (state or {}).get(place) or self._fallback_apply_state(*place)
        return variable.assign_sub(
            rate["lr_t"] * variable * self._share, use_locking=self._use_locking
        )

    def _resource_apply_dense(self, gradient: Any, variable: Any, apply_state: Any = None) -> Any:
        with tf.control_dependencies([self._decayed(variable, apply_state)]):
            return super()._resource_apply_dense(gradient, variable, apply_state)

    def _resource_apply_sparse(
        self, gradient: Any, variable: Any, indices: Any, apply_state: Any = None
    ) -> Any:
        with tf.control_dependencies([self._decayed(variable, apply_state)]):
            return super()._resource_apply_sparse(gradient, variable, indices, apply_state)


class Densified(tf_keras.optimizers.legacy.SGD):
    """Momentum on whole tables: a sparse gradient, each row in it once, is made dense before."""

    def __init__(self) -> None:
        super().__init__(0.1, momentum=0.9, name="Densified")

    def _resource_apply_dense(self, gradient: Any, variable: Any, apply_state: Any = None) -> Any:
        momentum = self.get_slot(variable, "momentum")
        step = momentum.assign(0.9 * momentum + 0.1 * gradient, use_locking=self._use_locking)
        return variable.assign_sub(0.1 * step, use_locking=self._use_locking)

    def _resource_apply_sparse(
        self, gradient: Any, variable: Any, indices: Any, apply_state: Any = None
    ) -> Any:
        rows = tf.IndexedSlices(gradient, indices, variable.shape)
        return self._resource_apply_dense(tf.convert_to_tensor(rows), variable)


class _WordsNet(LegacyNet):
    """A net of tf_keras that looks up words."""

    def __init__(self, strategy: tf.distribute.Strategy, optimizer: Callable[[], Any]) -> None:
        layers = tf_keras.layers
        words = layers.Embedding(60, 16, input_length=WIDTH)
        Net.__init__(
            self,
            strategy,
            optimizer,
            lambda: tf_keras.Sequential([words, layers.Flatten(), layers.Dense(OUTPUTS)]),
        )


def _looked_up(optimizer: Callable[[], Any]) -> Scenario:
    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = _WordsNet(strategy, optimizer)

        def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
            ids = tf.cast(tf.math.floormod(tf.abs(rows) * 20.0, 50.0), tf.int32)
            return net.train(ids, wanted)

        seen = net.run(train, 4)
        # Legacy optimizers have made their slots by now.
        return Left(net.state, seen)

    return scenario


def _unlike_batches(optimizer: Optimizer, **of_embedding: Any) -> Scenario:
    """Replicas have batches of different sizes, and of none; they trace at times of their own."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        replicas = range(strategy.num_replicas_in_sync)
        batches = [[sizes[replica % len(sizes)] for replica in replicas] for sizes in BATCHES]
        return Left(train_embedding(strategy, optimizer, batches=batches, **of_embedding), [])

    return scenario


SCENARIOS: dict[str, Scenario] = {
    **row_branches.SCENARIOS,
    "clipped_by_rows": _looked_up(ClippedByRows),
    "decayed_adam": _looked_up(DecayedAdam),
    "densified": _looked_up(Densified),
    "unlike_batches_by_rows": _unlike_batches(V1["adam"]),
    "unlike_batches_in_branches": _unlike_batches(KERAS["adamw"], dtype="int64"),
    "unlike_batches_shared": _unlike_batches(KERAS["nadam"], shared=True),
}
