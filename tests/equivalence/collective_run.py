"""Trains by collectives in a process of its own, and says what the rewritten step consists of.

    python -m tests.equivalence.collective_run

The collectives of a process join groups by keys that each strategy counts anew, so that strategies
of other devices would be taken for the same group. Those of the same devices are, and number their
collectives alike: one trains unsharded before and one after.
"""

from __future__ import annotations

import collections
import json
from typing import Any

import keras
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import dense_model, turn_off, turn_on


def main() -> None:
    """Prints, as one line of JSON, what was found."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    unsharded = _trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    turn_on(dialect="collective")
    by_collectives = _trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    turn_off()
    after = _trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    turn_on(dialect="collective")
    by_hand = tf.distribute.ReductionToOneDevice()
    on_one_device = _trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], by_hand))
    print(json.dumps([unsharded, by_collectives, after, on_one_device]))


def _trained(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = dense_model()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

        def step(batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(batch, training=True) - 1.0))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        @tf.function
        def train(batch: Any) -> Any:
            return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)

        batch = tf.ones((4, *model.input_shape[1:]))
        losses = [float(train(batch)) for _ in range(3)]
    ops = [
        op
        for op in train.get_concrete_function(batch).graph.get_operations()
        if op.type.startswith("Collective")
    ]
    return {
        "losses": losses,
        "types": collections.Counter(op.type for op in ops),
        "instance_keys": len({op.inputs[3].name for op in ops}),
        "group_keys": sorted({(op.device[-5:], op.inputs[2].name) for op in ops}),
        "report": "".join(map(str, tf_wu_shard.reports()[-1:])),
    }


if __name__ == "__main__":
    main()
