"""The numbers of a lowered step on eight CPU devices are those of one device, and of NumPy."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tests.tpu_compiler.cpu_execution import execute
from tests.tpu_compiler.programs import axis_groups, sharded_descent
from tf_wu_shard import models
from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.topology import parse_topology
from tf_wu_shard.tpu_compiler import step
from tf_wu_shard.tpu_compiler.body import ReplicaBody, replica_body

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

SLICE = parse_topology("v5e:2x4")
BATCH = 2


def keras_step(model: keras.Model, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Every weight after one step on the whole batch and one device."""
    model.train_on_batch(*arrays)
    return [variable.numpy() for variable in model.trainable_variables]


def compiled(name: str) -> keras.Model:
    model = models.build(name)
    # Adam's first step is the gradient's sign where nothing bounds the division: rounding noise of
    # a gradient near zero would become a whole step.
    model.compile(keras.optimizers.Adam(0.01, epsilon=0.01), models.loss(name))
    return model


@pytest.fixture(scope="module", params=["mlp", "transformer_lm"])
def traced(request: pytest.FixtureRequest) -> tuple[str, keras.Model, ReplicaBody]:
    """A model under a strategy that only traces, and its step's body."""
    name: str = request.param
    strategy = step.strategy_for(SLICE)
    with strategy.scope():
        model = compiled(name)
        model.optimizer.build(model.trainable_variables)
    graph = step.trace(model, models.data(name, BATCH), strategy)
    return name, model, replica_body(graph)


def argument_of(body: ReplicaBody, variable: keras.Variable) -> str:
    """The argument that a Keras variable enters by."""
    handle = variable.value._packed_variable.packed_handle
    (found,) = (a.name for a in body.arguments if a.handle is handle)
    return found


def test_a_replicated_step_is_the_step_of_one_device(
    traced: tuple[str, keras.Model, ReplicaBody], compiler: Worker
) -> None:
    name, abstract, body = traced
    count = SLICE.num_devices
    keras.utils.set_random_seed(1)
    model = compiled(name)
    arrays = models.data(name, BATCH * count, seed=2)
    values: dict[str, Any] = {}
    tensors = [a for a in body.arguments if not a.is_variable]
    # The number of the replica, and then its part of the batch.
    for argument, array in zip(tensors, (np.arange(count, dtype=np.int32), *arrays), strict=True):
        values[argument.name] = array.reshape(count, *argument.shape)
    for argument in body.arguments:
        if argument.is_variable:
            dtype = np.int64 if argument.dtype == 9 else np.float32
            values[argument.name] = np.zeros((count, *argument.shape), dtype)
    weights = {
        argument_of(body, traced_weight): weight
        for traced_weight, weight in zip(
            abstract.trainable_variables, model.trainable_variables, strict=True
        )
    }
    rate = argument_of(body, abstract.optimizer.learning_rate)
    values[rate] = np.full(count, 0.01, np.float32)
    for argument_name, weight in weights.items():
        values[argument_name] = np.stack([weight.numpy()] * count)
    found = execute(body, values, compiler)
    for argument_name, expected in zip(weights, keras_step(model, arrays), strict=True):
        for copy in found.written[argument_name]:
            # Adam moves a weight by 0.01 at most, so this is no loose bound: 1e-4 of a step.
            np.testing.assert_allclose(copy, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), None])
def test_a_sharded_step_is_numpys(axes: tuple[int, int] | None, compiler: Worker) -> None:
    everyone = [list(range(SLICE.num_devices))]
    stages = [everyone] if axes is None else [axis_groups(SLICE.coordinates, axis) for axis in axes]
    body = sharded_descent(32, 4, stages, SLICE.num_devices)
    random = np.random.default_rng(0)
    gradients = 0.1 * random.standard_normal((8, 32, 4)).astype(np.float32)
    weight = random.standard_normal((32, 4)).astype(np.float32)
    found = execute(body, {"gradient": gradients, "weight": np.stack([weight] * 8)}, compiler)
    expected = weight - np.square(gradients.sum(0, dtype=np.float64))
    for copy in found.written["weight"]:
        # Of numbers near one, some float32 roundings.
        np.testing.assert_allclose(copy, expected, rtol=0, atol=1e-6)
