"""A lowered Keras step, replicated and sharded, computes what the emulated strategy computes.

The HLO that libtpu compiles is run on eight CPU devices by XLA, from given weights, slots and
examples of each replica; the same step is run by TensorFlow under the emulated TPUStrategy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.in_process import in_shards, state, turn_off, turn_on
from tests.selection import cases
from tests.tpu_compiler.cpu_execution import execute
from tests.tpu_compiler.keras_steps import (
    BATCH,
    TracedStep,
    adam,
    compiled,
    given_values,
    layout_of,
    muon,
    traced,
)
from tf_wu_shard import models
from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.storage.parts import cut_all, join
from tf_wu_shard.topology import parse_topology

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

PLACE = parse_topology("v5e:2x4")
COUNT = PLACE.num_devices

# Two compilers sum a matrix product's some dozens of terms in other orders. Weights and slots are
# of the order of 1 and smaller, and this is 16 roundings of a float32 near 1.
ROUNDING = 1e-6
# And no more than this part of the way that the step moves the farthest element of the tensor, so
# that it also means something for the slots of small gradients.
OF_A_STEP = 1e-4

OPTIONS: dict[str, dict[str, Any] | None] = {
    "replicated": None,
    "sharded": {},
    "gathered in bfloat16": {"gather_dtype": "bfloat16"},
}
# What every run takes.
QUICK = {*(("mlp", options) for options in OPTIONS), ("transformer_lm", "sharded")}

Emulated = Callable[..., tf.distribute.TPUStrategy]


def emulated_step(
    name: str,
    strategy: tf.distribute.TPUStrategy,
    options: dict[str, Any] | None,
    optimizer: Callable[[], keras.optimizers.Optimizer] = adam,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The state of a model before and after a step under the emulated strategy."""
    keras.utils.set_random_seed(1)
    model = compiled(name, strategy, optimizer)
    before = given_values(model)
    for variable, value in zip(state(model), before, strict=True):
        variable.assign(value)
    parts = [np.split(array, COUNT) for array in models.data(name, BATCH * COUNT, seed=2)]

    def own(context: Any) -> tuple[tf.Tensor, ...]:
        return tuple(tf.constant(p[context.replica_id_in_sync_group]) for p in parts)

    data = strategy.experimental_distribute_values_from_function(own)
    if options is not None:
        turn_on(**options)
    try:
        model.make_train_function()
        model.train_function(iter([data]))
    finally:
        turn_off()
    assert any(in_shards(variable) for variable in state(model)) == (options is not None)
    return before, [np.asarray(variable.numpy()) for variable in state(model)]


def executed_step(
    name: str, step: TracedStep, before: list[np.ndarray], compiler: Worker
) -> Iterator[np.ndarray]:
    """What XLA's run of a step leaves in each variable, the same on every replica."""
    # The metrics' sums begin at nothing.
    values: dict[str, Any] = {
        a.name: np.zeros((COUNT, *a.shape), tf.as_dtype(a.dtype).as_numpy_dtype)
        for a in step.body.arguments
    }
    tensors = [a for a in step.body.arguments if not a.is_variable]
    # The number of the replica, where something is left that reads it, and its part of the batch.
    arrays = (np.arange(COUNT, dtype=np.int32), *models.data(name, BATCH * COUNT, seed=2))
    for argument, array in zip(tensors, arrays[-len(tensors) :], strict=True):
        values[argument.name] = array.reshape(COUNT, *argument.shape)
    variables = state(step.model)
    for variable, value in zip(variables, before, strict=True):
        argument = step.argument(variable)
        if argument.shape != value.shape:
            shards = cut_all(tf.constant(value), layout_of(variable, PLACE))
            values[argument.name] = np.stack([shard.numpy() for shard in shards])
        else:
            values[argument.name] = np.stack([value] * COUNT)
    written = execute(step.body, values, compiler).written
    for variable, value in zip(variables, before, strict=True):
        argument = step.argument(variable)
        after = written.get(argument.name, values[argument.name])
        if argument.shape != value.shape:
            yield join([tf.constant(shard) for shard in after], layout_of(variable, PLACE)).numpy()
        else:
            # Replicas drift apart where a gather is missing.
            np.testing.assert_array_equal(after, np.stack([after[0]] * COUNT))
            yield after[0]


@pytest.mark.parametrize(
    ("name", "options"),
    cases(itertools.product(["mlp", "transformer_lm"], OPTIONS), QUICK),
)
def test_weights_and_slots_after_a_step_are_those_of_the_emulated_run(
    name: str, options: str, emulated: Emulated, compiler: Worker
) -> None:
    asked = OPTIONS[options]
    strategy = emulated(COUNT, PLACE.name)
    before, expected = emulated_step(name, strategy, asked)
    step = traced(name, PLACE, asked)
    if asked is not None:
        assert step.report is not None and len(step.report.variables) >= 2
    check_agreement(executed_step(name, step, before, compiler), expected, before)


def check_agreement(
    found: Iterable[np.ndarray], expected: list[np.ndarray], before: list[np.ndarray]
) -> None:
    """Fails where XLA's run left something else than the emulated one."""
    for one, other, value in zip(found, expected, before, strict=True):
        moved = np.abs(other - value).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=min(ROUNDING, OF_A_STEP * moved))
        # Whatever the step did not move would prove nothing; the learning rate it does not move.
        assert moved > 0 or value.shape == ()


def test_whole_tensors_go_by_turns_between_the_same_replicas(
    emulated: Emulated, compiler: Worker
) -> None:
    before, expected = emulated_step("mlp", emulated(COUNT, PLACE.name), {}, muon)
    step = traced("mlp", PLACE, {}, muon)
    assert step.report is not None and step.report.emitted["all_to_all"] == 2
    check_agreement(executed_step("mlp", step, before, compiler), expected, before)


def test_replicas_that_stand_elsewhere_than_the_step_says_would_show(
    emulated: Emulated, compiler: Worker
) -> None:
    before, expected = emulated_step("mlp", emulated(COUNT, PLACE.name), {})
    step = traced("mlp", PLACE, {})
    nodes = {node.name: node for node in step.body.graph_def.node}
    scatter = next(node for node in nodes.values() if node.op == "XlaReduceScatter")
    groups = nodes[scatter.input[1]].attr["value"].tensor
    groups.CopyFrom(tf.make_tensor_proto(tf.make_ndarray(groups)[:, ::-1]))
    found = list(executed_step("mlp", step, before, compiler))
    apart = [np.abs(one - other).max() for one, other in zip(found, expected, strict=True)]
    assert max(apart) > 100 * ROUNDING
