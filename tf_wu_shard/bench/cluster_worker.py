"""One worker of a measured cluster: `TF_CONFIG=... python -m tf_wu_shard.bench.cluster_worker`.

Commands: `build` (settings, mode), then any of `step`, `no_update`, `update`, `memory`, `slots`,
`votes`, `rehearse` (times) and `digest`, each asked of all workers at the same time, and `weights`
(file). The first step traces. It ends when its standard input does.
"""

from __future__ import annotations

import functools
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import models
from tf_wu_shard.bench import custom_loop, optimizers, resident_memory, training
from tf_wu_shard.bench.conversation import WorkerError, serve
from tf_wu_shard.bench.settings import Settings
from tf_wu_shard.config import FLAG
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.workers.agreement import Proposal
from tf_wu_shard.workers.cluster import worker_cluster

# Workers come to a vote up to so long after one another, as they do from tracing.
_APART_S = 0.25

# Longer than any of them is busy; who misses another so long fails.
_PATIENCE_S = 60.0


class _Cluster:
    """Trains one model on all workers, and answers for this one.

    Attributes:
        strategy: That of all workers.
    """

    def __init__(self, settings: Settings, mode: str) -> None:
        # Before anything else asks TensorFlow for its devices.
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        if mode == "sharded":
            training.shard_or_raise(settings.min_elements)
        keras.utils.set_random_seed(settings.seed)
        with self.strategy.scope():
            self._model = models.build(settings.model, **settings.model_sizes)
            self._optimizer = optimizers.make(settings.optimizer, settings.epsilon)
            self._optimizer.build(self._model.trainable_variables)
        self._batches = [self._own(batch, settings) for batch in range(training.BATCHES)]
        self._train = custom_loop.train_function(
            self.strategy, self._model, self._optimizer, models.loss(settings.model)
        )
        self._settings = settings
        self._taken = {"step": 0, "no_update": 0}

    @property
    def parameter_bytes(self) -> int:
        """Of the trained weights."""
        return training.num_bytes(self._model.trainable_variables)

    @property
    def slot_bytes(self) -> int:
        """Of the optimizer's slots, where they are whole; counters and rates are scalars."""
        return training.num_bytes([v for v in self._optimizer.variables if len(v.shape)])

    def step(self) -> dict[str, float]:
        """Takes a step; its seconds, those of the processor that this process had, its loss."""
        return self._timed("step", self._train)

    def no_update(self) -> dict[str, float]:
        """Computes this worker's own gradients, all of them held until all are there."""
        return self._timed("no_update", self._gradients)

    def update(self) -> dict[str, float]:
        """Does the update of as many elements as this worker's shards have, with no exchange.

        These are the ops of the sharded step's update, which are copies of the optimizer's own, on
        tensors of the shards' sizes.
        """
        start = time.perf_counter()
        float(self._own_update())
        return {"seconds": time.perf_counter() - start}

    def save_weights(self, file: str) -> None:
        """Writes the trained weights, in the model's order."""
        np.savez(file, *(variable.numpy() for variable in self._model.trainable_variables))

    def _timed(self, command: str, function: Callable[..., tf.Tensor]) -> dict[str, float]:
        batch = self._batches[self._taken[command] % len(self._batches)]
        self._taken[command] += 1
        start, used = time.perf_counter(), time.process_time()
        loss = float(function(*batch))
        return {
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - used,
            "loss": loss,
        }

    @functools.cached_property
    def _gradients(self) -> Callable[..., tf.Tensor]:
        with self.strategy.scope():
            unused = training.UnusedGradients()
            unused.build(self._model.trainable_variables)
        loss = models.loss(self._settings.model)
        return custom_loop.train_function(self.strategy, self._model, unused, loss)

    @functools.cached_property
    def _own_update(self) -> Callable[[], tf.Tensor]:
        # It trains on one replica, where there is nothing to shard.
        tf.config.optimizer.set_experimental_options({FLAG: False})
        sizes = [
            flat_layout(tuple(v.shape), self._settings.replicas, v.dtype.size).shard_size
            for v in (variable.value for variable in self._model.trainable_variables)
        ]
        shards = [keras.Variable(tf.zeros([size])) for size in sizes]
        optimizer = optimizers.make(self._settings.optimizer, self._settings.epsilon)
        optimizer.build(shards)
        gradients = [tf.Variable(tf.fill([size], 1e-3)) for size in sizes]

        @tf.function
        def updated() -> tf.Tensor:
            optimizer.apply_gradients(zip(gradients, shards, strict=True))
            return shards[-1].value[0]

        return updated

    def rehearse(self, times: int) -> None:
        """Agrees with the others on nothing, so many times, by two votes as on a step."""
        cluster = worker_cluster(self.strategy)
        apart = random.Random(cluster.number)
        for _ in range(times):
            time.sleep(apart.uniform(0, _APART_S))
            first = cluster.begin(["a rehearsal"], Proposal({}), _PATIENCE_S, lambda: None)
            time.sleep(apart.uniform(0, _APART_S))
            second = cluster.confirm(None)
            if second is None or not second.agreed:
                raise WorkerError(f"no agreement: {(second or first).summary}")

    def digest(self) -> str:
        """What differs between workers if a bit of a weight does."""
        return custom_loop.digest(self._model.weights)

    def _own(self, number: int, settings: Settings) -> tuple[tf.Tensor, ...]:
        """This worker's part of a global batch."""
        size, worker = settings.batch, self.strategy.cluster_resolver.task_id
        start = (number * settings.replicas + worker) * size
        arrays = training.examples(settings)
        return tuple(tf.constant(array[start : start + size]) for array in arrays)


def main() -> int:
    """Serves one parent; returns the exit status."""
    after_imports = resident_memory.peak_bytes()
    answers: dict[str, Callable[..., Any]] = {}

    def build(settings: dict[str, Any], mode: str) -> dict[str, int]:
        cluster = _Cluster(Settings(**settings), mode)
        answers.update(
            step=cluster.step,
            memory=lambda: resident_memory.peak_bytes() - after_imports,
            slots=lambda: max(r.slot_bytes_per_replica.sharded for r in tf_wu_shard.reports()),
            votes=lambda: custom_loop.votes(cluster.strategy),
            rehearse=cluster.rehearse,
            digest=cluster.digest,
            no_update=cluster.no_update,
            update=cluster.update,
            weights=cluster.save_weights,
        )
        return {"parameter_bytes": cluster.parameter_bytes, "slot_bytes": cluster.slot_bytes}

    answers["build"] = build
    return serve(answers)


if __name__ == "__main__":
    sys.exit(main())
