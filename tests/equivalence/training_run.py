"""Training runs of one mode in a process of its own, each written down as weights and slots.

    python -m tests.equivalence.training_run '{"mode": ..., "replicas": ..., "folder": ..., ...}'

Baseline and sharded runs never share a process, so that neither can colour the other; the runs of
one mode take turns in one, under one strategy, as starting TensorFlow costs more than most of them.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import pathlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence import sabotage
from tests.equivalence.configurations import Configuration
from tests.equivalence.optimizers import RECIPES
from tf_wu_shard import models
from tf_wu_shard.config import CompileUpdate
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

STEPS = 20
# Examples of each replica in each step: enough for BatchNorm to see a variance.
BATCH = 4

# What each mode is, next to the baseline: the order of the sums, or sharding by a dialect.
REDUCTIONS: dict[str, Callable[[], tf.distribute.CrossDeviceOps]] = {
    "reordered": tf.distribute.ReductionToOneDevice,
    "in_order": lambda: tf.distribute.ReductionToOneDevice(accumulation_fn=_sum_in_order),
}
DECAY_LOST = "decay_lost"
# How XLA compiles the updates, by mode; op by op in all others.
COMPILED: dict[str, CompileUpdate] = {"compiled": "exact", "fast": "fast"}
DIALECTS = {
    "sharded": "auto",
    "reference": "reference",
    DECAY_LOST: "auto",
    **dict.fromkeys(COMPILED, "auto"),
}


def main(job: dict[str, Any]) -> None:
    """Runs every configuration of the job and writes one .npz and one .json for each."""
    replicas, mode = job["replicas"], job["mode"]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    reduction = REDUCTIONS[mode]() if mode in REDUCTIONS else None
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)], reduction)
    if mode == DECAY_LOST:
        sabotage.lose_first_writes()
    folder = pathlib.Path(job["folder"])
    for settings in job["configurations"]:
        configuration = Configuration(**settings)
        set_mode(mode, configuration.min_elements)
        tf_wu_shard.clear_reports()
        facts: dict[str, Any] = {"error": "", "slots": {}}
        facts["slots_a_weight"] = RECIPES[configuration.optimizer].slots
        try:
            tensors, facts["slots"] = train(strategy, configuration)
            arrays: dict[str, Any] = dict(tensors)
            np.savez(folder / f"{configuration.name}.npz", **arrays)
        except Exception:
            facts["error"] = traceback.format_exc()
        facts["reports"] = [dataclasses.asdict(report) for report in tf_wu_shard.reports()]
        (folder / f"{configuration.name}.json").write_text(json.dumps(facts))
        keras.backend.clear_session()
        gc.collect()


def _sum_in_order(values: list[tf.Tensor]) -> tf.Tensor:
    """((v0 + v1) + v2) + ..., rounded after every addition.

    AddN, which would be used otherwise, starts with any operand whose buffer it may take over, and
    a tree of additions is turned into an AddN when the graph is optimized; a running sum is not.
    """
    return tf.cumsum(tf.stack(values))[-1]


def set_mode(mode: str, min_elements: int | None) -> None:
    """Sets the flag as the mode wants it; modes without sharding leave it off."""
    options: Any = False
    if mode in DIALECTS:
        dialect: Any = DIALECTS[mode]
        options = tf_wu_shard.ShardingOptions(
            min_elements=min_elements,
            dialect=dialect,
            on_refusal="raise",
            compile_update=COMPILED.get(mode, False),
        )
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": options})


def train(
    strategy: tf.distribute.Strategy, configuration: Configuration
) -> tuple[dict[str, np.ndarray], dict[str, bool]]:
    """Trains for `STEPS` steps.

    Args:
        strategy: The strategy of this process.
        configuration: What to train and how.

    Returns:
        The initial and final tensors by name, and of each optimizer variable whether its
        storage is in shards.
    """
    keras.utils.set_random_seed(20)
    name = _model(configuration)
    recipe = RECIPES[configuration.optimizer]
    with strategy.scope():
        model = models.build(name)
        if recipe.fused:
            counter = tf.Variable(0, dtype=tf.int64, trainable=False)
            optimizer = recipe.make(counter)
        else:
            optimizer = recipe.make()
            optimizer.build(model.trainable_variables)
    start = _values("start", model.trainable_variables)
    inputs, targets = models.data(name, STEPS * BATCH * configuration.replicas, seed=3)
    if configuration.loop == "fit":
        model.compile(optimizer, models.loss(name))
        model.fit(
            *(inputs, targets),
            batch_size=BATCH * configuration.replicas,
            shuffle=False,
            verbose=0,
        )
    else:
        step = _step(configuration, model, optimizer, counter if recipe.fused else None)
        _loop(strategy, step, inputs, targets)
    slots = _fused_slots(model, optimizer) if recipe.fused else optimizer.variables
    tensors = start | _values("trained", model.trainable_variables) | _values("slot", slots)
    tensors |= _values("state", model.non_trainable_variables)
    return tensors, {key: _in_shards(slot) for key, slot in _named("slot", slots).items()}


def _model(configuration: Configuration) -> str:
    if configuration.model != "dense":
        return configuration.model
    # All variables of the first are small and fit no number of replicas; below the default of
    # min_elements it would have nothing to shard.
    return "odd_shapes" if configuration.min_elements == 1 else "mlp"


def _step(
    configuration: Configuration, model: keras.Model, optimizer: Any, counter: tf.Variable | None
) -> Callable[..., tf.Tensor]:
    """What each replica does: its share of the gradient of the global batch's mean loss."""
    loss_of = models.loss(_model(configuration))

    def step(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(targets, model(inputs, training=True)) / configuration.replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        if counter is None:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        else:
            optimizer.apply_gradients(
                zip(gradients, _raw(model.trainable_variables), strict=True), global_step=counter
            )
        return loss

    return tf.function(step) if configuration.loop == "traced_replica_function" else step


def _loop(
    strategy: tf.distribute.Strategy,
    step: Callable[..., tf.Tensor],
    inputs: np.ndarray,
    targets: np.ndarray,
) -> None:
    """The custom loop: one traced function a step, each replica on its rows of the batch."""

    @tf.function
    def train_step(features: Any, labels: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, (features, labels)), axis=None)

    replicas = strategy.num_replicas_in_sync
    rows = [np.split(array, STEPS * replicas) for array in (inputs, targets)]
    for number in range(STEPS):
        batch = [
            strategy.experimental_distribute_values_from_function(
                lambda context, own=own: tf.constant(
                    own[number * replicas + context.replica_id_in_sync_group]  # noqa: B023
                )
            )
            for own in rows
        ]
        train_step(*batch)


def _raw(variables: list[keras.Variable]) -> list[tf.Variable]:
    """The `tf.Variable`s of Keras variables, which fused optimizers want."""
    return [variable.value for variable in variables]


def _fused_slots(model: keras.Model, optimizer: Any) -> list[tf.Variable]:
    return [
        optimizer.get_slot(weight, name)
        for name in sorted(optimizer.get_slot_names())
        for weight in _raw(model.trainable_variables)
    ]


def _named(kind: str, variables: list[Any]) -> dict[str, Any]:
    """Variables under keys that two processes agree on: position and shape, no counted names."""
    return {
        f"{kind} {index:03d} {'x'.join(str(size) for size in variable.shape) or 'scalar'}": variable
        for index, variable in enumerate(variables)
    }


def _values(kind: str, variables: list[Any]) -> dict[str, np.ndarray]:
    return {key: variable.numpy() for key, variable in _named(kind, variables).items()}


def _in_shards(slot: Any) -> bool:
    variable = slot.value if isinstance(slot, keras.Variable) else slot
    return sharded_slot_of(original_handle(variable.values[0])) is not None


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
