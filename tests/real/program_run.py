"""Programs on one ground, all unsharded or all sharded, in a process of its own.

    python -m tests.real.program_run '{"ground": ..., "sharded": ..., "programs": [...], ...}'

On workers, each of them runs it, with TF_CONFIG, and Keras is repaired as far as it has to be.

A process has one strategy and one mode, as in tests/equivalence, so that neither mode can colour
the other. The programs take turns, as starting TensorFlow costs more than most of them; each leaves
a file of arrays and a file of facts, written when it ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import pathlib
import sys
import time
import traceback
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tf_wu_shard
from tests.equivalence.in_process import in_shards, turn_off
from tests.real.corpus import programs
from tests.real.program import MIRRORED, WORKERS, Program, Trained
from tests.strategies import mirrored_strategy, worker_strategy
from tests.workers.keras_on_workers import keras_on_workers
from tf_wu_shard.emulation import emulated_tpu_strategy

_TPU_REPLICAS = 4

# Left to themselves, workers on CPUs leave the step of a small model alone; nothing else asks.
_OPTIONS = tf_wu_shard.ShardingOptions(min_step_elements=1)


def main(job: dict[str, Any]) -> None:
    """Runs the programs of the job and writes NAME.npz and NAME.json of each into its folder."""
    on_workers = job["ground"] == WORKERS
    strategy = _strategy(job["ground"])
    folder = pathlib.Path(job["folder"])
    if on_workers:
        folder /= str(strategy.cluster_resolver.task_id)
        folder.mkdir(exist_ok=True)
    known = programs()
    with keras_on_workers() if on_workers else contextlib.nullcontext():
        for name in job["programs"]:
            arrays: dict[str, Any]
            facts, arrays = run(strategy, known[name], sharded=job["sharded"])
            np.savez(folder / f"{name}.npz", **arrays)
            # Written last: what has facts has arrays.
            (folder / f"{name}.json").write_text(json.dumps(facts))
            if facts["error"] and on_workers:
                # TensorFlow gives up the collectives of such a process for good.
                return


def _strategy(ground: str) -> tf.distribute.Strategy:
    # Grappler may sort a sum, or fuse an operation with what follows, by what it sees of a graph;
    # without it the same sums are made in the same order, and what differs is the sharding.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if ground == WORKERS:
        return worker_strategy()
    return mirrored_strategy() if ground == MIRRORED else emulated_tpu_strategy(_TPU_REPLICAS)


def run(
    strategy: tf.distribute.Strategy, program: Program, *, sharded: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs one program.

    Returns:
        Facts: its `error`, a traceback or ""; of each of its `weights` the name, the number of
        elements and whether it is stored in shards; of each of the `state` the same; the
        `reports`; `seconds`. And its arrays: weights, state and what was seen, by position.
    """
    keras.backend.clear_session()
    tf_keras.backend.clear_session()
    # Programs that compute in another type set it for all layers to come.
    keras.config.set_dtype_policy("float32")
    tf_keras.mixed_precision.set_global_policy("float32")
    keras.utils.set_random_seed(11)
    tf_wu_shard.clear_reports()
    if sharded:
        tf.config.optimizer.set_experimental_options({"weight_update_sharding": _OPTIONS})
    begun = time.monotonic()
    facts: dict[str, Any] = {"error": "", "weights": [], "state": []}
    arrays: dict[str, np.ndarray] = {}
    try:
        trained = program.train(strategy)
        facts["seconds"] = time.monotonic() - begun
        facts["weights"] = [_described(v) for v in trained.weights]
        facts["state"] = [_described(v) for v in trained.state]
        arrays = _arrays(trained)
    except Exception:
        facts["error"] = traceback.format_exc()
    facts["reports"] = [dataclasses.asdict(report) for report in tf_wu_shard.reports()]
    turn_off()
    gc.collect()
    return facts, arrays


def _described(variable: Any) -> tuple[str, int, bool]:
    inner = variable.value if isinstance(variable, keras.Variable) else variable
    name = inner.name.removesuffix(":0")
    return name, int(np.prod(inner.shape)), hasattr(inner, "values") and in_shards(inner)


def _arrays(trained: Trained) -> dict[str, np.ndarray]:
    """Arrays under keys that two processes agree on: positions, as names are counted."""
    found = {f"weight {i:03d}": np.array(v.numpy()) for i, v in enumerate(trained.weights)}
    found |= {f"state {i:03d}": np.array(v.numpy()) for i, v in enumerate(trained.state)}
    return found | {f"seen {i:03d}": np.array(one) for i, one in enumerate(trained.seen)}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
