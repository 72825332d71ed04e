"""Exports a step of a TPU program; in a process of its own, as emulation changes what runs."""

from __future__ import annotations

import pathlib
import sys

import tf_wu_shard
from tests.inspection.on_replicas import OnReplicas
from tests.model_files.exported import save


def export(folder: pathlib.Path, replicas: int) -> None:
    """Writes the classifier with a step that `TPUStrategy` runs, as saved_model.save does.

    Args:
        folder: Where to.
        replicas: How many replicas the program is for.
    """
    strategy = tf_wu_shard.emulation.emulated_tpu_strategy(replicas)
    module = OnReplicas(strategy, "adam")
    save(module, folder, {"train": module.train})


if __name__ == "__main__":
    export(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
