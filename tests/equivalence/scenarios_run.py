"""Runs every scenario of a module without and with the flag, in a process of its own.

    TF_ENABLE_ONEDNN_OPTS=0 python -m tests.equivalence.scenarios_run nested_scenarios [NAME...]

They run under an emulated TPUStrategy, or with MODULE@mirrored under a MirroredStrategy, which
reduces without collectives with MODULE@one_device. With MODULE@collective the shards travel by
collectives, too. MODULE@workers is run by each worker of a cluster, with TF_CONFIG; with
MODULE@workers_of_two each has two replicas. With MODULE@nccl the step is the one of GPUs.
Neither oneDNN nor Grappler takes part: both fuse a matrix product or sort a sum by what they see of
the variable behind an operand. So the same sums are made in the same order, to the last bit.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import in_shards, turn_off, turn_on
from tests.equivalence.nested_scenarios import Left, Scenario
from tests.nccl.on_cpus import stand_in_for_nccl
from tests.strategies import mirrored_strategy, worker_strategy
from tf_wu_shard.emulation import emulated_tpu_strategy
from tf_wu_shard.grounds.registry import dialect_names

# How a MirroredStrategy reduces; None is as it chooses itself.
_REDUCTIONS: dict[str, Callable[[], tf.distribute.CrossDeviceOps | None]] = {
    "mirrored": lambda: None,
    "one_device": tf.distribute.ReductionToOneDevice,
    "collective": lambda: None,
    "nccl": lambda: None,
}


def main(module: str, *names: str) -> None:
    """Prints, as one line of JSON, what came of each scenario."""
    module, _, ground = module.partition("@")
    scenarios = importlib.import_module(f"tests.equivalence.{module}").SCENARIOS
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = _strategy(ground)
    dialect = "collective" if ground == "nccl" else ground if ground in dialect_names() else "auto"
    emitted = stand_in_for_nccl(strategy) if ground == "nccl" else None
    found = {name: compared(strategy, scenarios[name], dialect) for name in names or scenarios}
    assert emitted is None or emitted["CollectiveReduceScatterV2"], "nothing was done as by NCCL"
    print(json.dumps(found))


def _strategy(ground: str) -> tf.distribute.Strategy:
    if ground in ("workers", "workers_of_two"):
        return worker_strategy(2 if ground == "workers_of_two" else 1)
    if ground in _REDUCTIONS:
        return mirrored_strategy(_REDUCTIONS[ground]())
    return emulated_tpu_strategy(4)


def compared(strategy: tf.distribute.Strategy, scenario: Scenario, dialect: str) -> dict[str, Any]:
    """Runs a scenario twice.

    Returns:
        `apart`: which numbers differ; `by`: by how much at most; `in_shards`: how many variables
        live so; `matrices_in_shards`: how many of them are matrices; `digest`: of the variables;
        `reports`: the text of the reports.
    """
    turn_off()
    unsharded = _numbers(_run(strategy, scenario))
    tf_wu_shard.clear_reports()
    turn_on(dialect=dialect)
    left = _run(strategy, scenario)
    turn_off()
    sharded = [v for v in left.variables if in_shards(v)]
    pairs = [*zip(unsharded, _numbers(left), strict=True)]
    return {
        "apart": [i for i, (a, b) in enumerate(pairs) if a.tobytes() != b.tobytes()],
        "by": max(float(np.abs(a - b).max(initial=0.0)) for a, b in pairs),
        "in_shards": len(sharded),
        "matrices_in_shards": sum(len(v.shape) == 2 for v in sharded),
        "digest": digest([np.array(v.numpy()) for v in left.variables]),
        "reports": [str(report) for report in tf_wu_shard.reports()],
    }


def digest(values: list[np.ndarray]) -> str:
    """What differs if a bit of any value does."""
    found = hashlib.sha256()
    for value in values:
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def _run(strategy: tf.distribute.Strategy, scenario: Scenario) -> Left:
    keras.utils.set_random_seed(11)
    return scenario(strategy)


def _numbers(left: Left) -> list[np.ndarray]:
    return [np.array(v.numpy()) for v in left.variables] + [np.asarray(v) for v in left.seen]


if __name__ == "__main__":
    main(*sys.argv[1:])
