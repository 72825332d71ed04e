"""Exports a step of a MirroredStrategy; in a process of its own, which needs two logical devices.

Prints what the pass does to the same step, as JSON: the layout of what it shards, how many slots.
"""

from __future__ import annotations

import json
import pathlib
import sys

import tensorflow as tf

import tf_wu_shard
from tests.inspection.on_replicas import OnReplicas

DEVICES = ("CPU:0", "CPU:1")

ACROSS = {
    "one_device": tf.distribute.ReductionToOneDevice,
    "copies": tf.distribute.HierarchicalCopyAllReduce,
}


def export(folder: pathlib.Path, policy: str, across: str, optimizer: str) -> None:
    """Writes the classifier, then has the pass look at the same step.

    Args:
        folder: Where to.
        policy: The name of one of `tf.saved_model.experimental.VariablePolicy`.
        across: How gradients are summed, of `ACROSS`.
        optimizer: A Keras optimizer's name.
    """
    each = [tf.config.LogicalDeviceConfiguration() for _ in DEVICES]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], each)
    strategy = tf.distribute.MirroredStrategy(list(DEVICES), ACROSS[across]())
    module = OnReplicas(strategy, optimizer)
    options = tf.saved_model.SaveOptions(
        experimental_custom_gradients=False,
        experimental_variable_policy=tf.saved_model.experimental.VariablePolicy[policy],
    )
    tf.saved_model.save(module, str(folder), signatures=module.train, options=options)
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": True})
    # Slots of the exported module are in use by its function, and would stay whole.
    fresh = OnReplicas(strategy, optimizer)
    fresh.train(tf.zeros((8, 16)), tf.zeros((8,), tf.int32))
    (report,) = (report for report in tf_wu_shard.reports() if report.num_replicas)
    print(json.dumps({v.name: [v.layout, len(v.slots)] for v in report.variables}))


if __name__ == "__main__":
    export(pathlib.Path(sys.argv[1]), *sys.argv[2:5])
