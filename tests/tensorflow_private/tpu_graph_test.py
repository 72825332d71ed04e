"""A handle that enters a TPU cluster is known to be of the variable that it was made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.storage.slots import mirrored
from tf_wu_shard.tensorflow_private import tpu_graph

VALUE = (1.0, 2.0)


@pytest.fixture
def strategy(emulated: Callable[[int], tf.distribute.TPUStrategy]) -> tf.distribute.TPUStrategy:
    tpu_graph.install()
    return emulated(2)


def variable(strategy: tf.distribute.TPUStrategy, **keywords: Any) -> Any:
    with strategy.scope():
        return tf.Variable(VALUE, **keywords)


def traced(strategy: tf.distribute.TPUStrategy, step: Callable[[], Any]) -> Any:
    """The graph of a function that runs a step on every replica."""

    @tf.function(autograph=False)
    def function() -> Any:
        # TensorFlow names the cluster after what is run, and a lambda has no name for it.
        def replica() -> Any:
            return step()

        return strategy.run(replica)

    return function.get_concrete_function().graph


def test_every_variable_is_known_by_the_op_that_its_handle_enters_through(
    strategy: tf.distribute.TPUStrategy,
) -> None:
    weight, slot = variable(strategy), variable(strategy, trainable=False)
    graph = traced(strategy, lambda: weight.assign_add(slot * 2.0))
    found = tpu_graph.replicated_variables(graph)
    assert sorted(map(id, found.values())) == sorted(map(id, (weight, slot)))
    types = {graph.get_operation_by_name(name).type for name in found}
    assert types == {"TPUReplicatedInput"}
    (written,) = (op for op in graph.get_operations() if op.type == "AssignAddVariableOp")
    assert found[written.inputs[0].op.name] is weight


def test_a_second_installation_changes_nothing_and_a_graph_without_a_cluster_has_none(
    strategy: tf.distribute.TPUStrategy,
) -> None:
    tpu_graph.install()
    weight = variable(strategy)
    assert len(tpu_graph.replicated_variables(traced(strategy, weight.read_value))) == 1
    plain = tf.Variable(VALUE)
    graph = tf.function(plain.read_value).get_concrete_function().graph
    assert tpu_graph.replicated_variables(graph) == {}


def test_variables_of_tpus_are_told_from_others_and_mirrored_ones_from_each_replicas_own(
    strategy: tf.distribute.TPUStrategy,
    strategy_of: Callable[[int], tf.distribute.MirroredStrategy],
) -> None:
    weight = variable(strategy)
    own = variable(strategy, synchronization=tf.VariableSynchronization.ON_READ)
    elsewhere = mirrored(strategy_of(2), VALUE)
    found = [
        (tpu_graph.is_on_tpus(one), tpu_graph.is_mirrored(one)) for one in (weight, own, elsewhere)
    ]
    assert found == [(True, True), (True, False), (False, True)]


def test_components_are_packed_behind_one_handle_on_tpus_alone(
    strategy: tf.distribute.TPUStrategy,
    strategy_of: Callable[[int], tf.distribute.MirroredStrategy],
) -> None:
    weight, elsewhere = variable(strategy), mirrored(strategy_of(2), VALUE)
    packed = tpu_graph.packed_handle(weight)
    assert tpu_graph.is_packed(packed) and not tpu_graph.is_packed(weight.values[0].handle)
    assert tpu_graph.packed_handle(elsewhere) is None
