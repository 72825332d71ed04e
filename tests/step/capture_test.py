"""A captured graph knows which handle is which replica's component of which variable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.tracing import captured_step, momentum_step, traced, weight_and_slot
from tf_wu_shard.graph.constants import integers
from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.capture import Captured, capture

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


@pytest.fixture(scope="module")
def step(strategy_of: Strategies) -> Captured:
    strategy = strategy_of(2)
    return captured_step(strategy, momentum_step(*weight_and_slot(strategy)))


def test_every_component_is_named_by_variable_and_replica(step: Captured) -> None:
    mirrored = [r for r in step.view.variables.values() if r.num_replicas > 1]
    refs = sorted((r.key, r.replica, r.num_replicas) for r in mirrored)
    assert refs == [("momentum", 0, 2), ("momentum", 1, 2), ("weight", 0, 2), ("weight", 1, 2)]
    assert {r.key: r.trainable for r in mirrored} == {
        "momentum": False,
        "weight": True,
    }


def test_a_variable_that_no_strategy_made_is_called_by_its_name() -> None:
    rate = tf.Variable(0.1, name="rate")
    graph = tf.function(lambda: 2 * rate).get_concrete_function().graph
    (ref,) = capture(graph).view.variables.values()
    assert ref.name == "rate"
    assert ref.num_replicas == 1


def test_a_function_without_a_tpu_program_has_no_cluster(step: Captured) -> None:
    assert step.cluster is None


def test_shape_type_and_device_are_the_components_own(step: Captured) -> None:
    for ref in (r for r in step.view.variables.values() if r.num_replicas > 1):
        component = step.variables[ref.key].values[ref.replica]
        assert ref.shape == (5, 7)
        assert ref.dtype == tf.float32.as_datatype_enum
        assert ref.device == component.device
        assert ref.mirrored


def test_shapes_and_types_are_those_of_the_tensors(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    graph = traced(strategy, momentum_step(*weight_and_slot(strategy)))
    view = capture(graph).view
    for op in graph.get_operations():
        for tensor in op.outputs:
            value = Value(op.name, tensor.value_index)
            assert view.dtype(value) == tensor.dtype.as_datatype_enum
            known = tensor.shape.as_list() if tensor.shape.is_fully_defined() else None
            assert view.shape(value) == (None if known is None else tuple(known))


def test_a_branch_knows_the_constants_that_it_takes_from_outside() -> None:
    scale = tf.Variable(2.0)
    seen: list[tuple[int, ...] | None] = []
    shapes: list[tuple[int, ...] | None] = []

    def branch(shape: tf.Tensor, computed: tf.Tensor) -> tf.Tensor:
        rows = tf.cast(computed, tf.float32) * scale * tf.ones([3, 7])
        dense = tf.math.unsorted_segment_sum(rows, tf.constant([1, 0, 1]), shape[0])
        placed = tf.square(dense)
        view = capture(placed.graph).view
        inputs = [op.name for op in view if op.type == "Placeholder"]
        seen.extend(integers(view.constant(Value(name))) for name in inputs)
        shapes.extend(view.shape(Value(t.op.name)) for t in (rows, dense, placed))
        return placed

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
    def step(x: tf.Tensor) -> tf.Tensor:
        shape = tf.constant([5, 7])

        def outer() -> tf.Tensor:
            return tf.cond(x > 1, lambda: branch(shape, x + 1), lambda: tf.zeros([5, 7]))

        return tf.cond(x > 0, outer, lambda: tf.zeros([5, 7]))

    step.get_concrete_function()
    assert sorted(map(str, seen)) == ["(5, 7)", "None", "None"]
    # What TensorFlow infers of them, it infers of no input.
    assert shapes == [(3, 7), (5, 7), (5, 7)]


def test_variables_of_one_name_have_keys_of_their_own(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    first, second = weight_and_slot(strategy), weight_and_slot(strategy)
    once = captured_step(strategy, lambda _: first[0] + second[0])
    assert sorted(once.variables) == ["weight", "weight_1"]
    assert {id(v) for v in once.variables.values()} == {id(first[0]), id(second[0])}


def test_a_variable_that_each_replica_writes_alone_is_not_mirrored(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        own = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    found = captured_step(strategy, lambda _: own.assign_add(1.0))
    assert [r.mirrored for r in found.view.variables.values()] == [False, False]
    assert found.variables == {}


def test_a_plain_variable_is_one_component(logical_cpus: list[str]) -> None:
    variable = tf.Variable(np.zeros(3, np.float32))
    function = tf.function(lambda: variable.assign_add([1.0, 2.0, 3.0]))
    view = capture(function.get_concrete_function().graph).view
    (ref,) = view.variables.values()
    assert (ref.num_replicas, ref.shape, ref.trainable) == (1, (3,), False)
