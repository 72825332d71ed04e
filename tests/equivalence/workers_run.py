"""Trains as one worker of several, with the flag and without, and prints what came of it.

TF_CONFIG=... python -m tests.equivalence.workers_run all       one replica a worker
TF_CONFIG=... python -m tests.equivalence.workers_run several   with two replicas a worker
TF_CONFIG=... python -m tests.equivalence.workers_run apart     worker 1 leaves the flag off
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tf_wu_shard
from tests.equivalence import (
    loop_scenarios,
    matrix_scenarios,
    repeated_scenarios,
    row_scenarios,
    slot_moments_scenarios,
    tf_keras_scenarios,
)
from tests.equivalence.in_process import turn_off, turn_on
from tests.equivalence.nested_scenarios import adam
from tests.equivalence.net import INPUTS, TARGETS, Net
from tests.equivalence.scenarios_run import compared, digest
from tests.strategies import worker_strategy
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

# One of each kind; the others run as `scenarios_run MODULE@workers`.
SAMPLE = {
    name: scenarios[name]
    for scenarios, names in (
        (loop_scenarios.SCENARIOS, ("range_of_steps", "read_between", "traced_again", "restored")),
        (repeated_scenarios.SCENARIOS, ("two_optimizers",)),
        (row_scenarios.SCENARIOS, ("unlike_batches_in_branches",)),
        (slot_moments_scenarios.SCENARIOS, ("called_twice",)),
        (tf_keras_scenarios.SCENARIOS, ("overwritten",)),
    )
    for name in names
}

# Those of them, and others, that several replicas a worker train unsharded.
SAMPLE_OF_SEVERAL = {
    name: scenarios[name]
    for scenarios, names in (
        (loop_scenarios.SCENARIOS, ("range_of_steps", "orbit_fused")),
        (matrix_scenarios.SCENARIOS, ("muon",)),
        (repeated_scenarios.SCENARIOS, ("two_optimizers",)),
        (row_scenarios.SCENARIOS, ("unlike_batches_by_rows", "unlike_batches_in_branches")),
    )
    for name in names
}


def trained(strategy: tf.distribute.Strategy, steps: int) -> tuple[Net, Callable[[], None]]:
    """A net after some steps, and what makes one more."""
    tf.keras.utils.set_random_seed(11)
    net = Net(strategy, adam())
    given = net.spread(INPUTS), net.spread(TARGETS)

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        return strategy.run(net.train, (rows, wanted))

    for _ in range(steps):
        step(*given)
    return net, lambda: step(*given)


def of_all(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Scenarios, and accesses of slots that one worker makes alone."""
    number = strategy.cluster_resolver.task_id
    found: dict[str, Any] = {"scenarios": {}}
    for name, scenario in SAMPLE.items():
        found["scenarios"][name] = compared(strategy, scenario, "auto")
    turn_off()
    plain, plain_step = trained(strategy, 3)
    expected = [v.numpy() for v in plain.state]
    plain_step()
    turn_on()
    net, step = trained(strategy, 3)
    turn_off()
    if number == 0:
        # The others wait for it, inside of the next step.
        time.sleep(1)
        found["read_alone"] = digest([v.numpy() for v in net.state])
        with tempfile.TemporaryDirectory() as folder:
            kept = tf.train.Checkpoint(state=list(map(_inner, net.state)))
            reader = tf.train.load_checkpoint(kept.save(str(pathlib.Path(folder) / "kept")))
            places = range(len(expected))
            names = [f"state/{place}/.ATTRIBUTES/VARIABLE_VALUE" for place in places]
            found["saved_alone"] = digest([reader.get_tensor(name) for name in names])
        found["expected"] = digest(expected)
    step()
    found["after"] = digest([v.numpy() for v in net.state])
    found["expected_after"] = digest([v.numpy() for v in plain.state])
    slots = [sharded_slot_of(original_handle(_inner(v).values[0])) for v in net.state]
    found["kept"] = [
        [int(tf.size(shard.value())) for shard in slot.shards] + [slot.layout.size]
        for slot in slots
        if slot is not None
    ]
    return found


def _inner(variable: Any) -> Any:
    return getattr(variable, "value", variable) if hasattr(variable, "_value") else variable


def of_several(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Scenarios of workers of several replicas, and a slot that one worker reads alone."""
    found: dict[str, Any] = {"scenarios": {}}
    for name, scenario in SAMPLE_OF_SEVERAL.items():
        found["scenarios"][name] = compared(strategy, scenario, "auto")
    turn_on()
    net, step = trained(strategy, 3)
    turn_off()
    if strategy.cluster_resolver.task_id == 0:
        # The others wait for it, inside of the next step.
        time.sleep(1)
        found["read_alone"] = digest([v.numpy() for v in net.state])
    step()
    # What is written whole is written to each replica's shard.
    slot = _inner(net.optimizer.variables[-1])
    slot.assign(tf.ones_like(slot))
    found["written"] = float(tf.reduce_sum(slot)) / slot.shape.num_elements()
    turn_on()
    net, _ = trained(strategy, 3)
    turn_off()
    found["read_together"] = digest([v.numpy() for v in net.state])
    return found


def of_some(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """What each worker says where one of them leaves the flag off."""
    plain, _ = trained(strategy, 2)
    if strategy.cluster_resolver.task_id == 0:
        turn_on(agreement_seconds=2.0)
    net, _ = trained(strategy, 2)
    return {
        "reasons": _reasons(),
        "equal": digest([v.numpy() for v in net.state]) == digest([v.numpy() for v in plain.state]),
    }


def main(what: str) -> None:
    """Prints, as one line of JSON, what came of it."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = worker_strategy(2 if what == "several" else 1)
    answer = {"all": of_all, "several": of_several, "apart": of_some}[what]
    print(json.dumps(answer(strategy)))


def _reasons() -> list[str]:
    return sorted({left.reason for report in tf_wu_shard.reports() for left in report.left_alone})


if __name__ == "__main__":
    main(sys.argv[1])
