"""What a traced function sees of a sharded slot, and what it emits for a pass to lower."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.storage.slots import mirrored, shard, values_of
from tf_wu_shard.errors import StorageError
from tf_wu_shard.storage.sharded_slot import sharded_slot_of

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

_SHAPE = (50, 7)


def _traced(use: Callable[[], object]) -> tf.Graph:
    """The graph of a function as it is traced, before any pass sees it."""
    graph = tf.__internal__.FuncGraph("traced")
    with graph.as_default():
        use()
    return graph


def _operations(graph: tf.Graph) -> list[tuple[str, str, list[str]]]:
    return [(op.type, op.name, [i.name for i in op.inputs]) for op in graph.get_operations()]


def test_a_slot_is_found_by_what_a_function_captured(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(2), values_of(_SHAPE))
    slot = shard(variable)
    ((outer, _),) = _traced(variable.read_value).captures
    assert sharded_slot_of(outer) is slot


def test_slots_are_made_while_a_function_is_traced(strategy_of: Strategies) -> None:
    strategy = strategy_of(4)
    variable = mirrored(strategy, values_of(_SHAPE))
    made = []

    def in_replica() -> None:
        def once(strategy: tf.distribute.Strategy) -> None:
            made.append(shard(variable))

        tf.distribute.get_replica_context().merge_call(once)

    function = tf.function(lambda: strategy.run(in_replica)).get_concrete_function()
    assert function.graph.get_operations() == []
    assert all(
        one.device == f"/job:localhost/replica:0/task:0/device:CPU:{index}"
        for index, one in enumerate(made[0].shards)
    )
    np.testing.assert_array_equal(variable.numpy(), values_of(_SHAPE))


@pytest.mark.parametrize(
    ("access", "kind"),
    [
        (lambda v: v.read_value(), "ReadVariableOp"),
        (lambda v: v.values[0].assign(tf.zeros(_SHAPE)), "AssignVariableOp"),
        (lambda v: v.values[0].assign_add(tf.zeros(_SHAPE)), "AssignAddVariableOp"),
        (lambda v: v.values[0].assign_sub(tf.zeros(_SHAPE)), "AssignSubVariableOp"),
        (lambda v: v.values[0][:2].assign(tf.zeros((2, 7))), "ResourceStridedSliceAssign"),
        (
            lambda v: v.values[0].scatter_add(tf.IndexedSlices(tf.zeros((1, 7)), [0])),
            "ResourceScatterAdd",
        ),
        (lambda v: v.values[0].is_initialized(), "VarIsInitializedOp"),
    ],
)
def test_a_traced_function_accesses_the_original_handle_with_ordinary_ops(
    strategy_of: Strategies, access: Callable[[tf.Variable], object], kind: str
) -> None:
    variable = mirrored(strategy_of(2), values_of(_SHAPE))
    handle = variable.values[0].handle
    before = _traced(lambda: access(variable))
    shard(variable)
    after = _traced(lambda: access(variable))
    (operation,) = [op for op in after.get_operations() if op.type == kind]
    (captured,) = [outer for outer, inner in after.captures if inner is operation.inputs[0]]
    assert captured is handle
    assert _operations(after) == _operations(before)


def test_a_variable_given_to_a_function_reads_whole(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(2), values_of(_SHAPE))
    shard(variable)
    read = tf.function(lambda v: v + 1.0)
    np.testing.assert_array_equal(read(variable), values_of(_SHAPE) + 1)


@pytest.mark.parametrize(
    "gather",
    [
        lambda v: tf.gather(v, [3, 1]),
        lambda v: v.gather_nd([[3, 1]]),
        lambda v: tf.nn.embedding_lookup(v, [3, 1]),
        lambda v: v[3:5],
    ],
)
def test_a_traced_gather_from_a_component_reads_the_whole_value(
    strategy_of: Strategies, gather: Callable[[tf.Variable], tf.Tensor]
) -> None:
    plain, variable = (mirrored(strategy_of(2), values_of(_SHAPE)) for _ in range(2))
    shard(variable)
    read = _traced(lambda: gather(variable.values[1]))
    assert {op.type for op in read.get_operations()} >= {"ReadVariableOp"}
    got = tf.function(lambda: gather(variable.values[1]))()
    np.testing.assert_array_equal(got, gather(plain.values[1]))


def test_a_component_given_to_a_function_is_refused_with_a_remedy(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(2), values_of(_SHAPE))
    shard(variable)
    with pytest.raises(StorageError, match="give the mirrored variable itself"):
        tf.function(lambda v: v + 1.0)(variable.values[1])


@pytest.mark.parametrize("use", [lambda v: v * 2.0, tf.reduce_sum, lambda v: v.value()])
def test_a_function_traced_before_fails_instead_of_reading_freed_storage(
    strategy_of: Strategies, use: Callable[[tf.Variable], tf.Tensor]
) -> None:
    variable = mirrored(strategy_of(2), values_of((8,)))
    function = tf.function(lambda: use(variable))
    function()
    shard(variable)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        function().numpy()


def test_a_tensorflow_1_graph_is_refused(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(2), values_of(_SHAPE))
    shard(variable)
    for access in (lambda: variable.values[0].value(), lambda: variable.values[0].assign(0.0)):
        with tf.Graph().as_default(), pytest.raises(StorageError, match="TensorFlow 1 graph"):
            access()
