"""Trainings under one strategy in a process of their own, each written down as an .npz.

    python -m tests.emulation.training_run '{"kind": "emulated", "features": {"4": [...]}, ...}'

A reference never shares a process with an emulated training, so that neither can colour the other.
"""

from __future__ import annotations

import gc
import json
import pathlib
import sys
import traceback
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.emulation.features import FEATURES, train
from tf_wu_shard.emulation import emulated_tpu_strategy


def main(job: dict[str, Any]) -> None:
    """Runs the trainings of the job: for each an .npz, or a .txt that says why not."""
    features_of = {int(replicas): names for replicas, names in job["features"].items()}
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * (max(features_of) + 1)
    )
    folder = pathlib.Path(job["folder"])
    for replicas, features in features_of.items():
        strategy = _strategy(job["kind"], replicas)
        for name in features:
            file = folder / f"{name}-{replicas}.npz"
            try:
                arrays: dict[str, Any] = dict(train(strategy, FEATURES[name]))
                np.savez(file, **arrays)
            except Exception:
                file.with_suffix(".txt").write_text(traceback.format_exc())
            keras.backend.clear_session()
            gc.collect()


def _strategy(kind: str, replicas: int) -> tf.distribute.Strategy:
    if kind == "emulated":
        return emulated_tpu_strategy(replicas)
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    return tf.distribute.get_strategy()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
