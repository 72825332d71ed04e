"""Claims about tensorflow_private/traced_only.py: many replicas at the price of one, or less."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private import traced_only
from tf_wu_shard.tensorflow_private.tpu_strategy import tpu_topology

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

TOPOLOGY = tpu_topology((4, 4, 1), [(x, y, 0, 0) for y in range(4) for x in range(4)])


@pytest.fixture(scope="module")
def strategy() -> tf.distribute.TPUStrategy:
    return traced_only.traced_only_strategy(TOPOLOGY)


def test_the_strategy_has_every_replica_and_knows_its_torus(
    strategy: tf.distribute.TPUStrategy,
) -> None:
    assert strategy.num_replicas_in_sync == 16
    assert traced_only.is_traced_only(strategy)
    metadata = strategy.extended._tpu_metadata
    assert tuple(metadata.topology.mesh_shape) == (4, 4, 1, 1)


def test_another_strategy_does_run() -> None:
    assert not traced_only.is_traced_only(tf.distribute.get_strategy())


def test_replicas_share_one_component(strategy: tf.distribute.TPUStrategy) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.zeros([3]))
    assert len(variable.values) == 16
    assert all(component is variable.values[0] for component in variable.values)


@pytest.mark.parametrize(
    "initial_value",
    [
        lambda: tf.random.normal([100, 100]),
        np.zeros([100, 100], np.float32),
        lambda: np.zeros([100, 100], np.float32),
    ],
    ids=["ops", "array", "function"],
)
def test_a_large_variable_has_a_shape_and_no_value(
    strategy: tf.distribute.TPUStrategy, initial_value: Callable[[], tf.Tensor] | np.ndarray
) -> None:
    with strategy.scope():
        variable = tf.Variable(initial_value, name="kernel", trainable=False)
    assert (variable.shape, variable.dtype) == ((100, 100), tf.float32)
    assert (variable.name, variable.trainable) == ("kernel:0", False)
    assert not variable.values[0].is_initialized()


def test_a_requested_type_holds_without_a_value(strategy: tf.distribute.TPUStrategy) -> None:
    with strategy.scope():
        variable = tf.Variable(np.zeros([100, 100]), dtype=tf.float32)
    assert variable.dtype == tf.float32


def test_a_small_variable_has_its_value(strategy: tf.distribute.TPUStrategy) -> None:
    with strategy.scope():
        rate = tf.Variable(0.5)
    assert float(rate.values[0].numpy()) == 0.5


def test_a_handle_enters_a_graph_packed_and_once(strategy: tf.distribute.TPUStrategy) -> None:
    with strategy.scope():
        weight = tf.Variable(tf.zeros([3]))

    @tf.function
    def train() -> None:
        def replica() -> None:
            weight.assign_add(weight)

        strategy.run(replica)

    graph = train.get_concrete_function().graph
    (handle,) = (
        op
        for op in graph.get_operations()
        if op.type == "TPUReplicatedInput" and op.outputs[0].dtype == tf.resource
    )
    assert handle.get_attr("is_packed") and handle.get_attr("N") == 1
    assert "AssignAddVariableOp" in traced_only.uses_of_trainable_variables(graph)


def test_what_is_not_trained_is_no_weight(strategy: tf.distribute.TPUStrategy) -> None:
    with strategy.scope():
        counter = tf.Variable(0.0, trainable=False)

    @tf.function
    def count() -> None:
        def replica() -> None:
            counter.assign_add(1.0)

        strategy.run(replica)

    graph = count.get_concrete_function().graph
    assert traced_only.uses_of_trainable_variables(graph) == set()
