"""Trainings of workers in rounds, one after the other: what users do, and what is refused.

    python -m tests.partial_sums.rounds.scenarios_run FOLDER [REPLICAS]

with TF_CONFIG; all workers have the folder. Each has so many replicas, or one. It prints what is to
be compared as a line of JSON, by the name of a scenario.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tf_wu_shard
from tests.partial_sums.rounds.steps_by_hand import StepsByHand
from tests.strategies import worker_strategy
from tf_wu_shard import PartialSums
from tf_wu_shard.partial_sums.options import FLAG
from tf_wu_shard.partial_sums.rounds.registry import begun_rounds

_STEPS = 12


class _Kept(tf_keras.callbacks.Callback):
    """Notes which weights are validated, and which an epoch ends with."""

    def __init__(self) -> None:
        super().__init__()
        self.validated: list[list[list[float]]] = []
        self.ended: list[list[list[float]]] = []

    def on_test_begin(self, logs: Any = None) -> None:
        self.validated.append(self._weights())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ended.append(self._weights())

    def _weights(self) -> list[list[float]]:
        return [value.ravel().tolist() for value in self.model.get_weights()]


def _bits(model: Any) -> list[str]:
    return [value.tobytes().hex()[:64] for value in model.get_weights()]


class _Scenarios:
    """All of them, on one strategy."""

    def __init__(self, replicas: int) -> None:
        self._strategy = worker_strategy(replicas)
        self._number = self._strategy.cluster_resolver.task_id
        self._replicas = replicas
        self._total = self._strategy.num_replicas_in_sync // replicas
        self._pause = random.Random(self._number)
        self._by_hand = StepsByHand(self._strategy)

    def run(self, folder: str) -> dict[str, Any]:
        """What each came to.

        Args:
            folder: Where backups are written.
        """
        tf.config.optimizer.set_experimental_options({FLAG: PartialSums(mode="solo")})
        return {
            "table": self.table(),
            "momentum": self.momentum(),
            "needs_more": self.needs_more(),
            "in_a_loop": self.in_a_loop(),
            "batches_outside": self.batches_outside(),
            "fit": self.fit(),
            "stops_early": self.stops_early(),
            "is_only_looked_at": self.is_only_looked_at(),
            "restart": self.restart(folder),
            "caller": self.caller(),
            "both_flags": self.both_flags(),
            "refused": self._by_hand.errors(),
        }

    def table(self) -> dict[str, Any]:
        """Rows of a table, looked up as often as a worker's batch is long, which differs."""
        with self._strategy.scope():
            table = tf.Variable(tf.zeros([11, 3]))
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([table])

        def replica(rows: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, rows))
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
        def step(rows: tf.Tensor) -> None:
            self._strategy.run(replica, (rows,))

        expected = np.zeros([11, 3], np.float32)
        for number in range(_STEPS):
            for worker in range(self._total):
                drawn = np.random.default_rng((number, worker))
                rows = drawn.integers(0, 11, drawn.integers(1, 6))
                np.subtract.at(expected, rows, float(self._replicas))
                if worker == self._number:
                    self._dawdle()
                    step(tf.constant(rows, tf.int32))
        tf_wu_shard.flush_partial_sums()
        return {"is_complete": bool(np.array_equal(table.numpy(), expected))}

    def momentum(self) -> dict[str, Any]:
        """What is late at the end reaches a weight whose optimizer writes a slot first."""
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([5]))
            optimizer = keras.optimizers.SGD(1.0, momentum=1.0)
            optimizer.build([weight])

        def replica(batch: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * batch)
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

        @tf.function
        def step(batch: tf.Tensor) -> None:
            self._strategy.run(replica, (batch,))

        for _ in range(4):
            # The first is always in time, the other never.
            time.sleep(0.1 * self._number)
            step(tf.fill([5], float(self._number)))
        momentum = optimizer.variables[-1]
        before = [weight.numpy(), momentum.numpy()]
        tf_wu_shard.flush_partial_sums()
        moved = [momentum.numpy() - before[1], weight.numpy() - before[0]]
        # All that the second gave is in the momentum, and the last of it moves the weight as well.
        return {
            "momentum": momentum.numpy().tolist(),
            "is_moved_by_it": bool(np.array_equal(weight.numpy(), before[0] + momentum.numpy())),
            "was_late": bool(np.any(moved[0])),
        }

    def needs_more(self) -> dict[str, Any]:
        """An update by a rate that each step is given: it cannot run by itself."""
        with self._strategy.scope():
            table = tf.Variable(tf.zeros([5, 2]))

        def replica(batch: tf.Tensor, rate: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [1, 3]) * batch)
            gradient = tf.convert_to_tensor(tape.gradient(loss, table))
            summed = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
            table.assign_sub(summed * rate)

        @tf.function
        def step(batch: tf.Tensor, rate: tf.Tensor) -> None:
            self._strategy.run(replica, (batch, rate))

        rate = tf.constant(0.5)
        for _ in range(4):
            # The first is always in time, the other never.
            time.sleep(0.1 * self._number)
            step(tf.ones([2, 2]), rate)
        tf_wu_shard.flush_partial_sums()
        before = table.numpy()[1].tolist()
        step(tf.zeros([2, 2]), rate)
        return {"flushed": before, "after": table.numpy()[1].tolist()}

    def in_a_loop(self) -> dict[str, Any]:
        """A whole epoch in a function, of datasets of which one is longer than the other."""
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([5]))
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([weight])

        def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
            count = 4 + 3 * context.input_pipeline_id
            return tf.data.Dataset.from_tensor_slices(tf.ones([count, 5])).batch(1)

        data = self._strategy.distribute_datasets_from_function(batches)

        def replica(batch: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * tf.reduce_sum(batch, 0))
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

        @tf.function
        def step(iterator: Iterator[Any]) -> None:
            self._strategy.run(replica, (next(iterator),))

        iterator, steps = iter(data), 0
        while True:
            self._dawdle()
            try:
                step(iterator)
            except tf.errors.OutOfRangeError:
                break
            steps += 1
        count = sum(4 + 3 * worker for worker in range(self._total))
        return {"steps": steps, "is_complete": bool(np.all(weight.numpy() == -count))}

    def batches_outside(self) -> dict[str, Any]:
        """Batches of a finite dataset are taken outside of the step: nothing is wrong, but slow."""
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([5]))
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([weight])

        def replica(batch: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * tf.reduce_sum(batch, 0))
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

        @tf.function
        def step(batch: Any) -> None:
            self._strategy.run(replica, (batch,))

        data = tf.data.Dataset.from_tensor_slices(tf.ones([12, 5])).batch(
            self._total * self._replicas
        )
        for batch in self._strategy.experimental_distribute_dataset(data):
            self._dawdle()
            step(batch)
        tf_wu_shard.flush_partial_sums()
        return {"is_complete": bool(np.all(weight.numpy() == -12))}

    def fit(self) -> dict[str, Any]:
        """Keras' fit, with an accuracy, statistics of batches and callbacks."""
        model, data = self._model_and_data()
        slow = tf_keras.callbacks.LambdaCallback(on_batch_begin=lambda batch, logs: self._dawdle())
        stop = tf_keras.callbacks.EarlyStopping("loss", patience=5, restore_best_weights=True)
        kept = _Kept()
        history = model.fit(
            data, epochs=4, validation_data=data, callbacks=[slow, stop, kept], verbose=0
        ).history
        # The trace before it made variables, and never runs.
        trace = model.train_function._list_all_concrete_functions()[-1]
        collectives = [
            op.name for op in trace.graph.get_operations() if op.type.startswith("Collective")
        ]
        return {
            "losses": history["loss"],
            "val_loss": history["val_loss"],
            "validates_what_it_keeps": kept.validated == kept.ended,
            "weights": _bits(model),
            "steps": int(model.optimizer.iterations.numpy()),
            "collectives": collectives,
            "changes": tf_wu_shard.reports()[-1].changes[FLAG],
        }

    def stops_early(self) -> int:
        """After how many epochs a fit stops whose loss is never as much better as asked for."""
        model, data = self._model_and_data()
        slow = tf_keras.callbacks.LambdaCallback(on_batch_begin=lambda batch, logs: self._dawdle())
        stop = tf_keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=1)
        return len(model.fit(data, epochs=4, callbacks=[slow, stop], verbose=0).history["loss"])

    def is_only_looked_at(self) -> dict[str, Any]:
        """Between steps a model is evaluated and predicts; what is late stays as it is."""
        model, data = self._model_and_data()
        dealt = iter(self._strategy.experimental_distribute_dataset(data.repeat()))
        step = model.make_train_function()
        for _ in range(3):
            # The first is always in time, the other never.
            time.sleep(0.1 * self._number)
            step(dealt)
        rounds = begun_rounds()[-1].rounds
        seen = [(rounds.num_steps, rounds.is_used, _bits(model))]
        model.evaluate(data, verbose=0)
        model.predict(data, verbose=0)
        seen.append((rounds.num_steps, rounds.is_used, _bits(model)))
        tf_wu_shard.flush_partial_sums()
        return {"stays": seen[0] == seen[1], "was_late": seen[1][-1] != _bits(model)}

    def restart(self, folder: str) -> dict[str, Any]:
        """A training that ends in its third epoch, and one that goes on from the second."""
        model, data = self._model_and_data()
        kept: list[list[np.ndarray]] = []

        def fail(epoch: int, logs: Any) -> None:
            kept.append(model.get_weights())
            if epoch == 2:
                raise InterruptedError

        callbacks = [
            tf_keras.callbacks.BackupAndRestore(folder),
            tf_keras.callbacks.LambdaCallback(
                on_epoch_begin=fail, on_batch_begin=lambda batch, logs: self._dawdle()
            ),
        ]
        with contextlib.suppress(InterruptedError):
            model.fit(data, epochs=3, callbacks=callbacks, verbose=0)
        again, data = self._model_and_data()
        begins: list[tuple[int, list[np.ndarray]]] = []
        note = tf_keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: begins.append((epoch, again.get_weights()))
        )
        again.fit(
            data, epochs=3, callbacks=[tf_keras.callbacks.BackupAndRestore(folder), note], verbose=0
        )
        first, restored = begins[0]
        return {
            "first_epoch": first,
            "is_restored": all(map(np.array_equal, restored, kept[-1])),
            "steps": int(again.optimizer.iterations.numpy()),
        }

    def _model_and_data(self) -> tuple[Any, tf.data.Dataset]:
        tf_keras.utils.set_random_seed(3)
        with self._strategy.scope():
            model = tf_keras.Sequential(
                [
                    tf_keras.Input((6,)),
                    tf_keras.layers.Dense(8, activation="relu"),
                    tf_keras.layers.BatchNormalization(),
                    tf_keras.layers.Dense(3),
                ]
            )
            loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(tf_keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
        drawn = np.random.default_rng(0)
        inputs = drawn.standard_normal((44, 6)).astype(np.float32)
        targets = inputs[:, :3].argmax(-1).astype(np.int32)
        return model, tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(8)

    def both_flags(self) -> str:
        """The sharded update is left off, and says why."""
        tf.config.optimizer.set_experimental_options({"weight_update_sharding": True})
        try:
            self._by_hand.one_weight(lambda tape, loss, weight: tape.gradient(loss, weight))()
        finally:
            tf.config.optimizer.set_experimental_options({"weight_update_sharding": False})
        report = tf_wu_shard.reports()[-1]
        return str(report.headline)

    def caller(self) -> dict[str, Any]:
        """What sums the losses that a step returns waits for nobody either."""
        step = self._by_hand.averaged()
        losses = [float(step()) for _ in range(3)]
        tf_wu_shard.flush_partial_sums()
        types = [op.type for op in step.get_concrete_function().graph.get_operations()]
        return {
            "is_less": losses[-1] < losses[0],
            "collectives": [one for one in types if one.startswith("Collective")],
            "said": [one.changes[FLAG] for one in tf_wu_shard.reports()][-1],
        }

    def _dawdle(self) -> None:
        if self._pause.random() < 0.3:
            time.sleep(0.02)


if __name__ == "__main__":
    folder, *replicas = sys.argv[1:]
    print(json.dumps(_Scenarios(*map(int, replicas or ["1"])).run(folder)))
