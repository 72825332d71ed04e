"""Every eager access to a sharded slot gives and leaves what it does on an unsharded variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.storage.slots import mirrored, shard, sharded, values_of

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

_SHAPE = (7, 6)
_LAST = 3


def _slices(seed: int) -> tf.IndexedSlices:
    return tf.IndexedSlices(values_of((2, 6), seed=seed), [1, 5])


# From a variable to anything that tf.nest can compare. `v` is the mirrored variable or a component.
_READS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda v: v.numpy(),
    "value": lambda v: v.value(),
    "read_value": lambda v: v.read_value(),
    "convert": tf.convert_to_tensor,
    "identity": tf.identity,
    "slice": lambda v: v[1:3, ::2],
    "row": lambda v: v[-1],
    "operator": lambda v: v + 1.0,
    "reversed_operator": lambda v: 2.0 - v,
    "matmul": lambda v: tf.matmul(v, v, transpose_b=True),
    "equal": lambda v: v == v.read_value(),
    "greater": lambda v: v > 3.0,
    "gather": lambda v: tf.gather(v, [1, 2]),
    "gather_axis": lambda v: tf.gather(v, [1, 2], axis=1),
    "embedding": lambda v: tf.nn.embedding_lookup(v, [3, 4]),
    "is_initialized": lambda v: v.is_initialized(),
    "array": np.asarray,
    "shape": tf.shape,
    "static": lambda v: (tuple(v.shape), v.dtype.name, v.name, v.device, v.trainable),
    "reduce": tf.reduce_sum,
    "placed": lambda v: v.value().device,
    "stack": lambda v: tf.stack([v, v]),
    "add_n": lambda v: tf.add_n([v, v]),
    "einsum": lambda v: tf.einsum("ij->ji", v),
    "where": lambda v: tf.where(v > 0, v, -v),
    "zeros_like": tf.zeros_like,
    "iterate": list,
    "map_fn": lambda v: tf.map_fn(lambda row: row * 2, v),
    "while_loop": lambda v: tf.while_loop(lambda i: i < 2, lambda i: [i + 1], [v[0, 0]]),
    "cond": lambda v: tf.cond(tf.constant(True), lambda: v + 1.0, lambda: v - 1.0),
    "py_function": lambda v: tf.py_function(lambda x: x * 2, [v], tf.float32),
    "dataset": lambda v: list(tf.data.Dataset.from_tensor_slices(v)),
    "expand_composites": lambda v: (
        tf.nest.pack_sequence_as(
            v, tf.nest.flatten(v, expand_composites=True), expand_composites=True
        )
        + 1.0
    ),
    "repr": lambda v: repr(v),
    "str": lambda v: str(v),
    "nest": lambda v: tf.nest.flatten(tf.nest.map_structure(tf.identity, [v, v])),
    "initial": lambda v: (v.synchronization, v.aggregation, v.constraint),
}

_COMPONENT_READS: dict[str, Callable[[Any], Any]] = {
    **_READS,
    "raw_op": lambda v: tf.raw_ops.AddV2(x=tf.constant(1.0), y=v),
    "sparse_read": lambda v: v.sparse_read([6, 0, 6]),
    "gather_nd": lambda v: v.gather_nd([[0, 1], [6, 5]]),
    "read_no_copy": lambda v: v.read_value_no_copy(),
}

_WRITES: dict[str, Callable[[Any], Any]] = {
    "assign": lambda v: v.assign(values_of(_SHAPE, seed=1)),
    "assign_itself": lambda v: v.assign(v * 2.0),
    "assign_add": lambda v: v.assign_add(values_of(_SHAPE, seed=2)),
    "assign_sub": lambda v: v.assign_sub(values_of(_SHAPE, seed=3)),
    "assign_no_read": lambda v: v.assign(values_of(_SHAPE, seed=1), read_value=False),
    "assign_add_no_read": lambda v: v.assign_add(values_of(_SHAPE), read_value=False),
    "slice_assign": lambda v: v[1:3, 2:4].assign(values_of((2, 2), seed=4)),
    "scatter_add": lambda v: v.scatter_add(_slices(5)),
    "scatter_sub": lambda v: v.scatter_sub(_slices(6)),
    "scatter_mul": lambda v: v.scatter_mul(_slices(7)),
    "scatter_div": lambda v: v.scatter_div(_slices(8)),
    "scatter_min": lambda v: v.scatter_min(_slices(9)),
    "scatter_max": lambda v: v.scatter_max(_slices(10)),
    "scatter_update": lambda v: v.scatter_update(_slices(11)),
}

_COMPONENT_WRITES: dict[str, Callable[[Any], Any]] = {
    **_WRITES,
    "chained": lambda v: v.assign(values_of(_SHAPE, seed=1)).assign_add(values_of(_SHAPE, seed=2)),
    "batch_scatter_update": lambda v: v.batch_scatter_update(
        tf.IndexedSlices(values_of((7, 1), seed=12), [[0], [1], [2], [3], [4], [5], [0]])
    ),
    "scatter_nd_add": lambda v: v.scatter_nd_add([[0, 1], [6, 5]], [1.0, 2.0]),
    "scatter_nd_sub": lambda v: v.scatter_nd_sub([[0, 1], [6, 5]], [1.0, 2.0]),
    "scatter_nd_update": lambda v: v.scatter_nd_update([[0, 1], [6, 5]], [1.0, 2.0]),
    "scatter_nd_max": lambda v: v.scatter_nd_max([[0, 1], [6, 5]], [1.0, 2.0]),
    "scatter_nd_min": lambda v: v.scatter_nd_min([[0, 1], [6, 5]], [1.0, 2.0]),
}


def _same(one: Any, other: Any) -> None:
    tf.nest.assert_same_structure(one, other)
    for left, right in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        if isinstance(left, str | bool | type(None)):
            assert left == right
        else:
            np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
            assert np.asarray(left).dtype == np.asarray(right).dtype


def _result(outcome: Any) -> Any:
    """A write's result as a value: TensorFlow returns futures, variables or tensors."""
    if isinstance(outcome, tf.distribute.DistributedValues):
        return [np.asarray(value) for value in outcome.values]
    return None if outcome is None else np.asarray(outcome)


def _pair(strategy: tf.distribute.Strategy) -> tuple[tf.Variable, tf.Variable]:
    value = values_of(_SHAPE)
    plain = mirrored(strategy, value, name="slot")
    slot = mirrored(strategy, value, name="slot")
    shard(slot)
    return plain, slot


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("read", _READS)
def test_a_read_through_the_variable_is_as_unsharded(
    strategy_of: Strategies, replicas: int, read: str
) -> None:
    plain, slot = _pair(strategy_of(replicas))
    _same(_READS[read](slot), _READS[read](plain))


def test_a_strategy_reads_and_reduces_the_slot_as_unsharded(strategy_of: Strategies) -> None:
    strategy = strategy_of(4)
    plain, slot = _pair(strategy)
    for read in (
        strategy.extended.read_var,
        lambda v: [v.numpy() for v in strategy.experimental_local_results(v)],
        lambda v: strategy.reduce("MEAN", v, axis=None).numpy(),
    ):
        _same(read(slot), read(plain))


@pytest.mark.parametrize("read", _COMPONENT_READS)
def test_a_read_through_a_component_is_as_unsharded(strategy_of: Strategies, read: str) -> None:
    plain, slot = _pair(strategy_of(4))
    access = _COMPONENT_READS[read]
    _same(access(slot.values[_LAST]), access(plain.values[_LAST]))


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("write", _WRITES)
def test_a_write_through_the_variable_leaves_what_it_does_unsharded(
    strategy_of: Strategies, replicas: int, write: str
) -> None:
    plain, slot = _pair(strategy_of(replicas))
    expected, got = _result(_WRITES[write](plain)), _result(_WRITES[write](slot))
    if expected is not None:
        _same(got, expected)
    for component, unsharded in zip(slot.values, plain.values, strict=True):
        _same(component.numpy(), unsharded.numpy())
    _same(slot.numpy(), plain.numpy())


@pytest.mark.parametrize("write", _COMPONENT_WRITES)
def test_a_write_through_one_component_is_seen_by_it_and_by_the_variable(
    strategy_of: Strategies, write: str
) -> None:
    plain, slot = _pair(strategy_of(4))
    expected = _result(_COMPONENT_WRITES[write](plain.values[_LAST]))
    got = _result(_COMPONENT_WRITES[write](slot.values[_LAST]))
    if expected is not None:
        _same(got, expected)
    for component, unsharded in zip(slot.values[1:], plain.values[1:], strict=True):
        _same(component.numpy(), unsharded.numpy())
    # Shards hold one value, the one that was written; the variable does not hide it.
    _same(slot.numpy(), plain.values[_LAST].numpy())


@pytest.mark.parametrize("write", _COMPONENT_WRITES)
def test_a_write_through_each_component_in_turn_counts_once(
    strategy_of: Strategies, write: str
) -> None:
    plain, slot = _pair(strategy_of(4))
    for variable in (plain, slot):
        for component in variable.values:
            _COMPONENT_WRITES[write](component)
    for component, unsharded in zip(slot.values, plain.values, strict=True):
        _same(component.numpy(), unsharded.numpy())
    _same(slot.numpy(), plain.numpy())


@pytest.mark.parametrize("write", ["assign", "assign_add", "assign_sub", "scatter_update"])
@pytest.mark.parametrize("replicas", [1, 4])
def test_a_write_and_reads_around_it_inside_an_eager_replica(
    strategy_of: Strategies, write: str, replicas: int
) -> None:
    strategy = strategy_of(replicas)
    plain, slot = _pair(strategy)

    def step(variable: tf.Variable) -> tuple[tf.Tensor, ...]:
        before = variable.read_value()
        _WRITES[write](variable)
        between = variable * 1.0
        _WRITES[write](variable)
        return before, between, variable.read_value()

    for _ in range(2):
        expected = strategy.run(step, (plain,))
        got = strategy.run(step, (slot,))
        for one, other in zip(got, expected, strict=True):
            _same(_locals(strategy, one), _locals(strategy, other))
        _same(slot.numpy(), plain.numpy())


def _locals(strategy: tf.distribute.Strategy, value: Any) -> list[np.ndarray]:
    return [np.asarray(one) for one in strategy.experimental_local_results(value)]


def test_an_eager_update_of_another_variable_may_use_the_slot(strategy_of: Strategies) -> None:
    strategy = strategy_of(4)
    plain, slot = _pair(strategy)
    weight, other_weight = (mirrored(strategy, values_of(_SHAPE, seed=5)) for _ in range(2))

    def momentum(weight: tf.Variable, gradient: tf.Tensor, slot: tf.Variable) -> None:
        slot.assign_add((gradient - slot) * 0.1)
        weight.assign_sub(slot * 0.01)

    for step in range(3):
        gradient = tf.constant(values_of(_SHAPE, seed=step))
        strategy.extended.update(weight, momentum, (gradient, plain), group=False)
        strategy.extended.update(other_weight, momentum, (gradient, slot), group=False)
    _same([v.numpy() for v in other_weight.values], [v.numpy() for v in weight.values])
    _same(slot.numpy(), plain.numpy())


@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_an_aggregated_write_inside_an_eager_replica(
    strategy_of: Strategies, aggregation: str
) -> None:
    strategy = strategy_of(4)
    kind = tf.VariableAggregation[aggregation]
    plain = mirrored(strategy, values_of(_SHAPE), aggregation=kind)
    slot = sharded(strategy, values_of(_SHAPE), aggregation=kind)

    def step(variable: tf.Variable) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        variable.assign_add(tf.fill(_SHAPE, tf.cast(replica, tf.float32) + 1.0))
        return variable.read_value()

    expected, got = strategy.run(step, (plain,)), strategy.run(step, (slot,))
    _same(_locals(strategy, got), _locals(strategy, expected))
    _same(slot.numpy(), plain.numpy())


def test_a_value_assigned_by_one_replica_alone_is_not_torn(strategy_of: Strategies) -> None:
    strategy = strategy_of(4)
    slot = sharded(strategy, values_of(_SHAPE))

    def step() -> None:
        if tf.distribute.get_replica_context().replica_id_in_sync_group == 0:
            slot.assign(values_of(_SHAPE, seed=1))

    strategy.run(step)
    _same(slot.numpy(), values_of(_SHAPE, seed=1))


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
def test_an_operand_of_another_shape_is_refused_and_changes_nothing(
    strategy_of: Strategies, method: str
) -> None:
    plain, slot = _pair(strategy_of(4))
    for bad in (np.ones((6, 7), np.float32), np.ones((), np.float32)):
        raised = []
        for variable in (plain, slot):
            with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as caught:
                getattr(variable, method)(bad)
            raised.append(caught.type)
        assert raised[0] is raised[1]
    _same(slot.numpy(), values_of(_SHAPE))


def test_a_count_up_to_counts_and_stops(strategy_of: Strategies) -> None:
    slot = sharded(strategy_of(2), tf.constant(3))
    assert int(slot.values[0].count_up_to(4)) == 3
    assert int(slot.numpy()) == 4
    with pytest.raises(tf.errors.OutOfRangeError):
        slot.values[0].count_up_to(4)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 0), (101,), (64, 65)])
@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_every_shape_reads_and_writes_whole(
    strategy_of: Strategies, replicas: int, shape: tuple[int, ...]
) -> None:
    slot = sharded(strategy_of(replicas), values_of(shape))
    _same(slot.numpy(), values_of(shape))
    slot.assign_add(values_of(shape, seed=1))
    _same(slot.numpy(), values_of(shape) + values_of(shape, seed=1))
    slot.assign(values_of(shape, seed=2))
    _same([v.numpy() for v in slot.values], [values_of(shape, seed=2)] * replicas)


@pytest.mark.parametrize(
    "dtype", [tf.float16, tf.bfloat16, tf.float64, tf.int64, tf.uint8, tf.bool, tf.complex64]
)
def test_every_dtype_reads_and_writes_whole(strategy_of: Strategies, dtype: tf.DType) -> None:
    slot = sharded(strategy_of(4), values_of(_SHAPE, dtype))
    _same(slot.numpy(), values_of(_SHAPE, dtype))
    slot.assign(values_of(_SHAPE, dtype, seed=1))
    _same(slot.numpy(), values_of(_SHAPE, dtype, seed=1))
