"""Workers that write a checkpoint while one is late, or that go on from one, as many or others.

    python -m tests.partial_sums.rounds.checkpoint_run write|read FOLDER

with TF_CONFIG. It prints what is to be compared as a line of JSON.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.partial_sums.late_training import SHAPE
from tests.partial_sums.rounds.workers_run import Training
from tests.strategies import worker_strategy
from tf_wu_shard import WuShardError

STEPS = 6

_LATE = "late_gradients/.ATTRIBUTES/py_state"


def gradients(total: int) -> np.ndarray:
    """What each worker's gradient is in each step; integers, of which all sums are exact."""
    return np.random.default_rng(total).integers(-9, 10, (STEPS, total, *SHAPE))


class Several:
    """Weights that TensorFlow sums in one pack, the gradient of each one number."""

    def __init__(self, strategy: tf.distribute.Strategy, *names: str) -> None:
        with strategy.scope():
            self.weights = {name: tf.Variable(tf.zeros([3]), name=name) for name in names}
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([*self.weights.values()])

        def replica(numbers: tf.Tensor) -> None:
            each = zip(tf.unstack(numbers, len(names)), self.weights.values(), strict=True)
            optimizer.apply_gradients([(tf.fill([3], number), weight) for number, weight in each])

        @tf.function
        def step(numbers: tf.Tensor) -> None:
            strategy.run(replica, (numbers,))

        self._step = step

    def take(self, **numbers: float) -> None:
        """Takes a step; the gradient of a weight that is not named is zero."""
        self._step(tf.constant([numbers.get(name, 0.0) for name in self.weights]))

    @property
    def numbers(self) -> dict[str, float]:
        """What each weight is, as all of its elements are the same."""
        return {name: float(weight.numpy()[0]) for name, weight in self.weights.items()}


class Run:
    """What one worker does."""

    def __init__(self, folder: pathlib.Path) -> None:
        strategy = self._strategy = worker_strategy()
        self._number = strategy.cluster_resolver.task_id
        self._folder = folder
        self._own = gradients(strategy.num_replicas_in_sync).astype(np.float32)
        # The weight is less by all gradients of all steps; its optimizer counts them.
        self._training = Training(strategy, "solo")
        weight, optimizer = self._training.weight, self._training.optimizer
        self._checkpoint = tf.train.Checkpoint(weight=weight, optimizer=optimizer)

    def _takes(self, steps: np.ndarray) -> None:
        self._training.run(steps, None)

    @property
    def _weight(self) -> np.ndarray:
        return np.asarray(self._training.weight.numpy())

    def write(self) -> dict[str, object]:
        """Writes one after all steps, for the last of which the first worker is late; goes on."""
        own, name = self._own, f"worker-{self._number}"
        self._takes(own[:-1])
        tf_wu_shard.flush_partial_sums()
        time.sleep(0.5 if self._number == 0 else 0.0)
        self._takes(own[-1:])
        before = self._weight
        paths = [self._checkpoint.write(str(self._folder / one)) for one in (name, f"{name}-again")]
        self._takes(np.zeros_like(own[:1]))
        expected = -own.sum((0, 1))
        names = [[name for name, _ in tf.train.list_variables(path)] for path in paths]
        return {
            "was_complete": bool(np.array_equal(before, expected)),
            "is_complete": bool(np.array_equal(self._weight, expected)),
            "late": [[name for name in held if "late" in name] for held in names],
        }

    def write_several(self) -> dict[str, object]:
        """Writes one of several weights while their first worker is late."""
        several = Several(self._strategy, "encoder", "head")
        several.take()
        time.sleep(0.5 if self._number == 0 else 0.0)
        several.take(encoder=1.0, head=10.0)
        path = str(self._folder / f"several-{self._number}")
        tf.train.Checkpoint(**several.weights).write(path)
        held = tf.train.load_checkpoint(path)
        return {"late": [held.has_tensor(f"{name}/{_LATE}") for name in several.weights]}

    def table(self) -> list[float]:
        """Writes and reads again what is late of a table, looked up as often in every step."""
        with self._strategy.scope():
            table = tf.Variable(tf.zeros([5, 2]))
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([table])

        def replica(rows: tf.Tensor, scale: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = scale * tf.reduce_sum(tf.gather(table, rows))
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        @tf.function(input_signature=[tf.TensorSpec([3], tf.int32), tf.TensorSpec([])])
        def step(rows: tf.Tensor, scale: tf.Tensor) -> None:
            self._strategy.run(replica, (rows, scale))

        rows = tf.constant([1, 3, 3])
        for _ in range(3):
            time.sleep(0.2 if self._number == 0 else 0.0)
            step(rows, tf.constant(1.0))
        checkpoint = tf.train.Checkpoint(table=table)
        checkpoint.read(checkpoint.write(str(self._folder / f"table-{self._number}")))
        step(rows, tf.constant(0.0))
        return [float(row[0]) for row in table.numpy()]

    def read_several(self) -> Mapping[str, object]:
        """Goes on from one weight of them, among others and in another order."""
        several = Several(self._strategy, "more", "head", "encoder")
        several.take(head=7.0)
        time.sleep(0.3 if self._number == 0 else 0.0)
        several.take(head=7.0, more=1.0)
        encoder = tf.train.Checkpoint(encoder=several.weights["encoder"])
        encoder.read(str(self._folder / "several-0")).expect_partial()
        several.take()
        return several.numbers

    def read(self) -> dict[str, object]:
        """Goes on from one that three workers have written."""
        own, written = self._own, -gradients(3).sum((0, 1))
        status = self._checkpoint.read(str(self._folder / "worker-0"))
        self._takes(own[:1])
        if self._number:
            # A model of one worker's own, which no other one waits for.
            _model().save(str(self._folder / "own.keras"))
        status.assert_consumed()
        self._takes(own[1:])
        model = _model()
        model.trained = self._training.weight
        # A file of Keras' has no place for what is late.
        model.save_weights(str(self._folder / f"keras-{self._number}.weights.h5"))
        complete = self._weight
        # One that is restored in the midst of a training takes back what is late.
        time.sleep(0.3 if self._number == 0 else 0.0)
        self._takes(own[:1])
        self._checkpoint.read(str(self._folder / "worker-0"))
        tf_wu_shard.flush_partial_sums()
        taken_back = self._weight
        steps = int(self._training.optimizer.iterations.numpy())
        self._takes(own[:1])
        return {
            "is_complete": bool(np.array_equal(complete, written - own.sum((0, 1)))),
            "is_taken_back": bool(np.array_equal(taken_back, written)),
            "steps": steps,
            "alone": self._alone(),
        }

    def _alone(self) -> str:
        """What the first worker is told that writes one while the other takes its next step."""
        if self._number:
            self._takes(self._own[:1])
            return ""
        try:
            return self._checkpoint.write(str(self._folder / "alone"))
        except WuShardError as error:
            return str(error)


def _model() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


if __name__ == "__main__":
    run = Run(pathlib.Path(sys.argv[2]))
    if sys.argv[1] == "write":
        found = run.write() | {"several": run.write_several(), "table": run.table()}
    else:
        found = {**run.read_several(), **run.read()}
    print(json.dumps(found))
