"""One worker that is late now and then: `python -m tf_wu_shard.bench.imbalance.worker`.

With TF_CONFIG. Its command `train` takes a whole training, asked of all workers at the same time;
any number of them, one after the other. It ends when its standard input does.
"""

from __future__ import annotations

import sys
import time
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import PartialSums
from tf_wu_shard.bench import custom_loop
from tf_wu_shard.bench.conversation import serve
from tf_wu_shard.bench.imbalance.tasks import Batch, Task, task
from tf_wu_shard.partial_sums.options import FLAG, Mode
from tf_wu_shard.partial_sums.rounds.registry import last_record


class _Trainer:
    """Trains one model after the other."""

    def __init__(self) -> None:
        # Before anything else asks TensorFlow for its devices.
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self._number = self._strategy.cluster_resolver.task_id

    def train(
        self,
        name: str,
        mode: str,
        momentum: float,
        batch: int,
        seed: int,
        max_staleness: int,
        delays: list[list[float]],
    ) -> dict[str, Any]:
        """Trains and answers with times, losses and scores.

        Args:
            name: A task's.
            mode: "synchronous", or the mode of `PartialSums`.
            momentum: Of SGD.
            batch: Examples a worker and step.
            seed: Of weights and data.
            max_staleness: As in `PartialSums`.
            delays: Per step, each worker's.
        """
        rounds = mode != "synchronous"
        asked = (
            PartialSums(mode=cast(Mode, mode), max_staleness=max_staleness, seed=seed)
            if rounds
            else False
        )
        tf.config.optimizer.set_experimental_options({FLAG: asked})
        if name == "text":
            # Threads add to one row of its table in any order otherwise, without the flag too, and
            # workers' weights would not be the same to the bit.
            tf.config.experimental.enable_op_determinism()
        todo = task(name, seed)
        keras.utils.set_random_seed(seed)
        batches = [self._own(todo.batch, number, batch) for number in range(len(delays) + 1)]
        late = [each[self._number] for each in delays]
        rate = todo.rate * (1 - momentum)
        by = self._by_fit if todo.by_fit else self._in_a_loop
        model, losses, times = by(todo, rate, momentum, batches, late)
        tf_wu_shard.flush_partial_sums()
        record = last_record() if rounds else None
        handed_in = [one.handed_in for one in record.steps][1:] if record else []
        inputs, targets = todo.held_out
        return {
            "losses": losses,
            "times": times,
            "handed_in": handed_in[: len(delays)],
            "share_in_time": record.share_in_time if record else 1.0,
            "staleness": record.staleness if record else 0,
            "held_up": sum(record.holds_up) if record else 0,
            "score": todo.score(targets, np.asarray(model(inputs, training=False))),
            "digest": custom_loop.digest(model.trainable_variables),
        }

    def _in_a_loop(
        self, todo: Task, rate: float, momentum: float, batches: list[Batch], delays: list[float]
    ) -> tuple[Any, list[float], list[Any]]:
        with self._strategy.scope():
            model = todo.model()
            falling = keras.optimizers.schedules.CosineDecay(rate, len(batches))
            optimizer = keras.optimizers.SGD(falling, momentum=momentum)
            optimizer.build(model.trainable_variables)
        tensors = [tuple(map(tf.constant, own)) for own in batches]
        step = custom_loop.train_function(
            self._strategy, model, optimizer, todo.loss, _signature(tensors[0])
        )
        # It traces, and all workers wait for each other in it.
        step(*tensors[0])
        losses, times = [], []
        for own, delay in zip(tensors[1:], delays, strict=True):
            begun = time.monotonic()
            time.sleep(delay)
            ready = time.monotonic()
            losses.append(float(step(*own)))
            times.append((begun, ready, time.monotonic()))
        return model, losses, times

    def _by_fit(
        self, todo: Task, rate: float, momentum: float, batches: list[Batch], delays: list[float]
    ) -> tuple[Any, list[float], list[Any]]:
        # Not all who measure have tf_keras.
        import tf_keras

        from tf_wu_shard.bench.imbalance.by_fit import train_by_fit

        with self._strategy.scope():
            falling = tf_keras.optimizers.schedules.CosineDecay(rate, len(batches))
            optimizer = tf_keras.optimizers.SGD(falling, momentum=momentum)
        return train_by_fit(self._strategy, optimizer, batches, delays)

    def _own(self, batch: Any, number: int, size: int) -> Batch:
        """This worker's part of a global batch."""
        place = number * self._strategy.num_replicas_in_sync + self._number
        found: Batch = batch(place, size)
        return found


def _signature(batch: tuple[tf.Tensor, ...]) -> list[tf.TensorSpec]:
    """Batches of any length: one trace takes them all."""
    return [
        tf.TensorSpec([None if part.dtype.is_integer else size for size in part.shape], part.dtype)
        for part in batch
    ]


def main() -> int:
    """Serves one parent; returns the exit status."""
    trainer = _Trainer()
    return serve({"train": trainer.train})


if __name__ == "__main__":
    sys.exit(main())
