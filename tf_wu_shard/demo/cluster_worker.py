"""One worker of a run on several: `TF_CONFIG=... python -m tf_wu_shard.demo.cluster_worker`.

It trains in a custom loop, as `fit` of Keras 3 does not run there. Commands: `build` (task, mode,
quick), then `step` until there is none left, `figures` and `votes`, each asked of all workers at
the same time, and `save` (folder, measured), asked of one of them: the slots that it saves whole
are in parts on all workers. It ends when its standard input does.
"""

from __future__ import annotations

import pathlib
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard.bench import custom_loop
from tf_wu_shard.bench.conversation import serve
from tf_wu_shard.config import FLAG
from tf_wu_shard.demo import runs, tasks
from tf_wu_shard.demo.recording import sharding, values
from tf_wu_shard.demo.runs import ClusterFigures, Mode, Run, Tensors
from tf_wu_shard.demo.tasks import SEED


class _Worker:
    """Trains a task with the other workers, and answers for this one.

    Attributes:
        steps: How many the task has.
        parameters: Number of trained weights.
        strategy: That of all workers.
    """

    def __init__(self, name: str, mode: Mode, *, quick: bool) -> None:
        # Before anything else asks TensorFlow for its devices.
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        if mode is Mode.SHARDED:
            # A quick demo's steps are so small that they would be left alone.
            options = tf_wu_shard.ShardingOptions(min_step_elements=1)
            tf.config.optimizer.set_experimental_options({FLAG: options})
        self._mode = mode
        self._task = tasks.task(name, quick)
        workers, own = self.strategy.num_replicas_in_sync, self.strategy.cluster_resolver.task_id
        keras.utils.set_random_seed(SEED)
        with self.strategy.scope():
            self._model = self._task.model()
            self._optimizer = self._task.optimizer()
            self._optimizer.build(self._model.trainable_variables)
        examples = self._task.training(workers, in_other_places=mode is Mode.REORDERED)
        size = self._task.batch
        starts = [(step * workers + own) * size for step in range(self._task.steps)]
        self._batches = [
            tuple(tf.constant(array[start : start + size]) for array in examples)
            for start in starts
        ]
        self._train = custom_loop.train_function(
            self.strategy,
            self._model,
            self._optimizer,
            self._task.loss(),
            # The last batch is smaller. A worker that traced it anew would do so alone.
            [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in examples],
        )
        self._taken = 0
        self.steps = self._task.steps
        self.parameters = self._model.count_params()

    def step(self) -> dict[str, float]:
        """Takes the next step; this worker's part of the global batch's loss, and its seconds."""
        batch = self._batches[self._taken]
        self._taken += 1
        begun = time.perf_counter()
        loss = float(self._train(*batch))
        return {"loss": loss, "seconds": time.perf_counter() - begun}

    def figures(self) -> dict[str, Any]:
        """The digest of this worker's weights, and the peak of its process's memory in bytes."""
        return {
            "digest": custom_loop.digest(self._model.weights),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    def save(self, folder: str, measured: dict[str, Any]) -> None:
        """Writes the run, with what was measured of all workers together, and its tensors."""
        run = Run(
            mode=self._mode,
            parameters=self.parameters,
            held_out=self._task.held_out_score(self._model),
            sharding=sharding(),
            **measured | {"cluster": ClusterFigures(**measured["cluster"])},
        )
        tensors = Tensors(values(self._model.weights), values(self._optimizer.variables))
        runs.save(pathlib.Path(folder), run, tensors)


def main() -> int:
    """Serves one parent; returns the exit status."""
    answers: dict[str, Callable[..., Any]] = {}

    def build(task: str, mode: str, quick: bool) -> dict[str, int]:
        worker = _Worker(task, Mode(mode), quick=quick)
        answers.update(
            step=worker.step,
            figures=worker.figures,
            votes=lambda: custom_loop.votes(worker.strategy),
            save=worker.save,
        )
        return {"steps": worker.steps, "parameters": worker.parameters}

    answers["build"] = build
    return serve(answers)


if __name__ == "__main__":
    sys.exit(main())
