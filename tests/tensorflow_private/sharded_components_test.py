"""What Python code does to a component reaches the storage; what a function does stays an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow_private.storages import Storage, sharded
from tf_wu_shard.errors import StorageError
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.closed_handles import ClosedHandle
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.tensorflow_private.sharded_components import as_whole, storage_of

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

VALUE = np.array([1.0, 2.0, 4.0], np.float32)


@pytest.fixture
def variable(strategy_of: Strategies) -> tf.Variable:
    """Of two replicas; trainable, as gradients flow through what a tape sees read."""
    return sharded(strategy_of(2), VALUE)


def storage(variable: tf.Variable) -> Storage:
    found = storage_of(original_handle(variable.values[0]))
    assert isinstance(found, Storage)
    return found


def test_a_read_is_the_components_own_or_of_the_whole_and_gradients_flow_through_it(
    variable: tf.Variable,
) -> None:
    first, second = variable.values
    for read, replica in (
        (second.read_value, 1),
        # Outside of the replicas the first one answers for the variable.
        (first.read_value, None),
        (lambda: tf.gather(second, [0, 1, 2]), 1),
        (lambda: second.sparse_read([0, 1, 2]), 1),
    ):
        np.testing.assert_array_equal(read(), VALUE)
        assert storage(variable).done.pop() == ("read", replica)
    with as_whole(), tf.GradientTape() as tape:
        loss = tf.reduce_sum(second.read_value() ** 2)
    assert storage(variable).done == [("read", None)]
    np.testing.assert_array_equal(tape.gradient(loss, second), 2 * VALUE)


def test_elementwise_writes_are_handed_on_and_those_of_other_shapes_are_refused(
    variable: tf.Variable,
) -> None:
    own = variable.values[1]
    assert own.assign_add(VALUE) is own and own.assign_sub([1, 1, 1], read_value=False) is None
    assert storage(variable).done == [("assign_add", 1), ("assign_sub", 1)]
    np.testing.assert_array_equal(storage(variable).value, 2 * VALUE - 1)
    with pytest.raises(ValueError, match="Shape mismatch"):
        own.assign([1.0, 2.0])
    # What a plain variable does not broadcast either.
    with pytest.raises(tf.errors.InvalidArgumentError, match="shapes must be equal"):
        own.assign_add(1.0)
    assert len(storage(variable).done) == 2


def test_any_other_write_is_made_to_the_whole_value_for_a_moment(variable: tf.Variable) -> None:
    own = variable.values[1]
    rows = tf.IndexedSlices(tf.constant([10.0, 10.0]), tf.constant([0, 0]))
    assert own.scatter_add(rows) is own
    own[1:].assign([5.0, 6.0])
    # Of a part that is written so, TensorFlow reads what it may not need.
    assert [what for what in storage(variable).done if what[0] != "read"] == [("write", 1)] * 2
    np.testing.assert_array_equal(storage(variable).value, [21, 5, 6])


def test_a_traced_function_has_the_ops_and_the_handle_of_an_unsharded_variable(
    variable: tf.Variable,
) -> None:
    own = variable.values[0]

    def step() -> tf.Tensor:
        own.assign_add(own * 2.0)
        return own.read_value()

    graph = tf.function(step, autograph=False).get_concrete_function().graph
    assert [outside for outside, _ in function_graph.captured_handles(graph)] == [
        original_handle(own)
    ]
    made = [op.type for op in graph.get_operations()]
    assert made.count("AssignAddVariableOp") == 1 and made.count("ReadVariableOp") == 2
    assert storage(variable).done == []


def test_what_cannot_work_on_shards_says_so(variable: tf.Variable) -> None:
    own = variable.values[1]
    assert isinstance(own.handle, ClosedHandle) and own.handle.original is original_handle(own)
    assert storage_of(tf.Variable(1.0).handle) is None
    with tf.Graph().as_default(), pytest.raises(StorageError, match="TensorFlow 1 graph"):
        own.read_value()
    with pytest.raises(StorageError, match=r"given to a tf\.function as an argument"):
        tf.function(lambda given: given + 1.0)(own)


def test_a_component_is_itself_again_after_its_type_took_it_apart(variable: tf.Variable) -> None:
    own: Any = variable.values[1]
    kind = own._type_spec
    parts = kind._to_components(own)
    assert parts == [original_handle(own)]
    assert kind._from_components(parts) is own
