"""Fits with tf_keras, backs up every epoch, and may lose a worker in the midst; see `backup_test`.

    TF_CONFIG=... python -m tests.equivalence.backup_run FOLDER fresh|backup|checkpoint [VICTIM]

Goes on from what `BackupAndRestore` finds in the folder, or from the last file of
`ModelCheckpoint`; `fresh` begins anew, and both write. The victim, a worker's number, kills itself
in the third epoch. Each worker prints lines of an epoch and the digests of weights and slots:
`from`, before anything is trained, `saved` after each epoch, and at the end `trained`.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from typing import Any

import tensorflow as tf
import tf_keras

import tf_wu_shard
from tests.equivalence.elastic_run import batches, compiled_model, digests
from tests.equivalence.in_process import turn_on

EPOCHS = 4
_FATAL_EPOCH, _FATAL_BATCH = 2, 0


class _Says(tf_keras.callbacks.Callback):
    """Prints what the model holds; it comes behind the callbacks that restore and save."""

    def __init__(self, is_victim: bool) -> None:
        super().__init__()
        self._is_victim = is_victim
        self._epoch: int | None = None

    def say(self, word: str, epoch: int) -> None:
        """Prints a line."""
        state = [*self.model.weights, *self.model.optimizer.variables]
        print(f"{word} {json.dumps([epoch, digests(state)])}", flush=True)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        if self._epoch is None:
            self.say("from", epoch)
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        if self._is_victim and (self._epoch, batch) == (_FATAL_EPOCH, _FATAL_BATCH):
            print(f"struck {time.monotonic()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.say("saved", epoch + 1)


def main(folder: str, start: str, victim: str = "-1") -> None:
    """Fits; the others of a victim end with an error."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    number = strategy.cluster_resolver.task_id
    turn_on()
    tf_keras.utils.set_random_seed(11 + number)
    model = compiled_model(strategy)
    files = pathlib.Path(folder) / "checkpoints"
    first = 0
    if start == "checkpoint":
        last = tf.train.latest_checkpoint(str(files))
        model.load_weights(last).assert_consumed()
        first = int(last.rpartition("-")[2])
    says = _Says(number == int(victim))
    callbacks = [
        tf_keras.callbacks.ModelCheckpoint(str(files / "after-{epoch}"), save_weights_only=True),
        says,
    ]
    if start != "checkpoint":
        backup = tf_keras.callbacks.BackupAndRestore(str(pathlib.Path(folder) / "backup"))
        callbacks.insert(0, backup)
    model.fit(
        batches(),
        **{"epochs": EPOCHS, "initial_epoch": first, "verbose": 0},
        callbacks=callbacks,
    )
    says.say("trained", EPOCHS)
    print(json.dumps(sorted({report.verdict for report in tf_wu_shard.reports()})))


if __name__ == "__main__":
    main(*sys.argv[1:])
