"""What replicas exchange, held against NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.emulation import replicas
from tf_wu_shard.emulation import EmulationError
from tf_wu_shard.tensorflow_private import xla_ops

ALL = [[0, 1, 2, 3]]
GROUPS = (ALL, [[0, 2], [1, 3]], [[3, 1], [2, 0]], [[0], [1], [2], [3]])
DTYPES = (tf.float32, tf.bfloat16, tf.float16, tf.int32, tf.uint32)
REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Min": np.minimum,
    "Max": np.maximum,
    "Mul": np.multiply,
}


def rows(dtype: tf.DType = tf.float32, shape: tuple[int, ...] = (4, 6)) -> npt.NDArray[Any]:
    """An operand for each of four replicas, [4, *shape]."""
    drawn = np.random.default_rng(1).uniform(1, 9, (4, *shape))
    return drawn.astype(dtype.as_numpy_dtype)


def reduced(operands: npt.NDArray[Any], group: list[int], operation: str) -> npt.NDArray[Any]:
    """The operands of a group combined in its order, rounded after each step."""
    mean = operation == "Mean"
    combine = REDUCTIONS["Add" if mean else operation]
    total = functools.reduce(combine, [operands[replica] for replica in group])
    return (total / np.array(len(group), total.dtype)).astype(total.dtype) if mean else total


def same(got: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return all(
        one.dtype == other.dtype and np.array_equal(one, other)
        for one, other in zip(got, expected, strict=True)
    )


def member_of(groups: list[list[int]], replica: int) -> tuple[list[int], int]:
    """A replica's group and its place in it."""
    (group,) = [group for group in groups if replica in group]
    return group, group.index(replica)


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_a_cross_replica_sum_adds_in_the_order_of_the_group(
    four: tf.distribute.TPUStrategy, dtype: tf.DType, groups: list[list[int]]
) -> None:
    operands = rows(dtype)
    got = replicas.run(four, lambda x: xla_ops.cross_replica_sum(x, groups), operands)
    assert same(got, [reduced(operands, member_of(groups, r)[0], "Add") for r in range(4)])


def test_a_sum_begins_with_the_first_replica_even_if_a_later_operand_could_be_overwritten(
    four: tf.distribute.TPUStrategy,
) -> None:
    # In any other order than 1 + 1e8 - 1e8 + 0.5 the small terms survive.
    operands = np.array([[1], [1e8], [-1e8], [0.5]], np.float32) * np.ones((4, 1000), np.float32)
    with four.scope():
        kept = tf.Variable(tf.zeros(1000))

    def function(own: tf.Tensor) -> tf.Tensor:
        # The first two operands are a variable's memory, which no sum may write to.
        kept.assign(own)
        mine = tf.cond(replicas.number() < 2, kept.read_value, lambda: tf.sin(own) * 0 + own)
        return replicas.context().all_reduce("sum", mine)

    for result in replicas.run(four, function, operands):
        np.testing.assert_array_equal(result, 0.5)


def test_a_sum_adds_what_a_replica_has_added_up_before(four: tf.distribute.TPUStrategy) -> None:
    # A layer that is used twice has such a gradient. 0.75 + 1e8 - 1e8 would lose the 0.75.
    first = np.array([[0.25], [0.25], [0.25], [1e8]], np.float32) * np.ones((4, 1000), np.float32)
    second = np.array([[0], [0], [0], [-1e8]], np.float32) * np.ones((4, 1000), np.float32)

    def function(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        return replicas.context().all_reduce("sum", tf.add_n([one * 1.0, other * 1.0]))

    for result in replicas.run(four, function, first, second):
        np.testing.assert_array_equal(result, 0.75)


@pytest.mark.parametrize("operation", [*REDUCTIONS, "Mean"])
@pytest.mark.parametrize("groups", GROUPS[:3], ids=str)
def test_an_all_reduce_reduces_as_it_is_told(
    four: tf.distribute.TPUStrategy, operation: str, groups: list[list[int]]
) -> None:
    for dtype in (tf.float32, tf.bfloat16) if operation == "Mean" else DTYPES:
        operands = rows(dtype, (3,))
        got = replicas.run(
            four,
            lambda x: xla_ops.xla_all_reduce(x, groups, operation, "CrossReplica"),
            operands,
        )
        expected = [reduced(operands, member_of(groups, r)[0], operation) for r in range(4)]
        assert same(got, expected), dtype


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("groups", GROUPS[:3], ids=str)
@pytest.mark.parametrize("operation", ["Add", "Max", "Mean"])
def test_a_reduce_scatter_gives_each_member_its_part(
    four: tf.distribute.TPUStrategy, groups: list[list[int]], axis: int, operation: str
) -> None:
    operands = rows(shape=(4, 8))
    got = replicas.run(
        four, lambda x: xla_ops.xla_reduce_scatter(x, groups, axis, operation), operands
    )
    expected = []
    for replica in range(4):
        group, place = member_of(groups, replica)
        expected.append(np.split(reduced(operands, group, operation), len(group), axis=axis)[place])
    assert same(got, expected)


@pytest.mark.parametrize("axes", [(0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("groups", GROUPS[:3], ids=str)
def test_an_all_to_all_hands_out_parts_and_joins_what_it_gets(
    four: tf.distribute.TPUStrategy, groups: list[list[int]], axes: tuple[int, int]
) -> None:
    cut, join = axes
    operands = rows(shape=(4, 8))
    size = len(groups[0])
    got = replicas.run(four, lambda x: xla_ops.all_to_all(x, join, cut, size, groups), operands)
    expected = []
    for replica in range(4):
        group, place = member_of(groups, replica)
        parts = [np.split(operands[member], size, axis=cut)[place] for member in group]
        expected.append(np.concatenate(parts, axis=join))
    assert same(got, expected)


def test_a_permutation_sends_zeros_to_who_is_nobodys_target(
    four: tf.distribute.TPUStrategy,
) -> None:
    operands = rows()
    got = replicas.run(
        four, lambda x: xla_ops.collective_permute(x, [[0, 1], [1, 2], [3, 0]]), operands
    )
    assert same(got, [operands[3], operands[0], operands[1], np.zeros_like(operands[0])])


def test_replicas_know_their_number(four: tf.distribute.TPUStrategy) -> None:
    numbers = replicas.run(four, xla_ops.xla_replica_id)
    assert [one.dtype for one in numbers] == [np.int32] * 4
    assert [int(one) for one in numbers] == [0, 1, 2, 3]
    assert [float(x) for x in replicas.run(four, replicas.number)] == [0, 1, 2, 3]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_dynamic_dimension_ends_at_its_size(four: tf.distribute.TPUStrategy, axis: int) -> None:
    operands = rows()
    got = replicas.run(
        four,
        lambda x, size: xla_ops.xla_set_dynamic_dimension_size(x, axis, size),
        operands,
        np.array([1, 2, 3, 0], np.int32),
    )
    expected = [
        operands[r][:size] if axis == 0 else operands[r][:, :size]
        for r, size in enumerate([1, 2, 3, 0])
    ]
    assert same(got, expected)


def test_what_only_advises_the_compiler_changes_nothing(four: tf.distribute.TPUStrategy) -> None:
    operands = rows()

    def function(x: tf.Tensor) -> tf.Tensor:
        first, second = xla_ops.xla_optimization_barrier([x, x + 1])
        return xla_ops.xla_sharding(first + second)

    assert same(replicas.run(four, function, operands), list(operands + (operands + 1)))


def test_all_gather_and_all_reduce_of_a_replicas_context_work(
    four: tf.distribute.TPUStrategy,
) -> None:
    operands = rows()
    gathered = replicas.run(four, lambda x: replicas.context().all_gather(x, axis=1), operands)
    assert same(gathered, [np.concatenate(operands, axis=1)] * 4)

    def function(x: tf.Tensor) -> tf.Tensor:
        nested = replicas.context().all_reduce("mean", {"a": x, "b": [x * 2]})
        return nested["a"] + nested["b"][0]

    for result in replicas.run(four, function, operands):
        np.testing.assert_allclose(result, 3 * operands.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    ("groups", "found"),
    [([[0, 1]], r"\[\[0, 1\]\]"), ([[0, 1], [1, 2]], r"\[\[0, 1\], \[1, 2\]\]")],
)
def test_groups_that_leave_replicas_out_are_refused(
    four: tf.distribute.TPUStrategy, groups: list[list[int]], found: str
) -> None:
    with pytest.raises(EmulationError, match=f"XlaAllReduce .* groups {found} do not hold each"):
        replicas.run(
            four, lambda x: xla_ops.xla_all_reduce(x, groups, "Add", "CrossReplica"), rows()
        )


def test_no_groups_are_one_of_all_replicas(four: tf.distribute.TPUStrategy) -> None:
    operands, none = rows(), np.zeros((0, 4), np.int32)
    got = replicas.run(
        four, lambda x: xla_ops.xla_all_reduce(x, none, "Add", "CrossReplica"), operands
    )
    assert same(got, [reduced(operands, [0, 1, 2, 3], "Add")] * 4)


def test_two_sources_of_one_target_are_refused(four: tf.distribute.TPUStrategy) -> None:
    with pytest.raises(EmulationError, match=r"CollectivePermute .* the target of two"):
        replicas.run(four, lambda x: xla_ops.collective_permute(x, [[0, 1], [2, 1]]), rows())


def test_operands_of_different_shapes_fail_and_are_never_broadcast(
    four: tf.distribute.TPUStrategy,
) -> None:
    def function(x: tf.Tensor, size: tf.Tensor, operation: str) -> tf.Tensor:
        cut = xla_ops.xla_set_dynamic_dimension_size(x, 0, size)
        return xla_ops.xla_all_reduce(cut, ALL, operation, "CrossReplica")

    for operation in ("Add", "Max"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            replicas.run(
                four,
                functools.partial(function, operation=operation),
                rows(),
                np.array([1, 4, 4, 4], np.int32),
            )


def test_computed_groups_are_refused(four: tf.distribute.TPUStrategy) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        groups = tf.reshape(tf.range(4) + tf.cast(x[0, 0] * 0, tf.int32), [1, 4])
        return xla_ops.xla_all_reduce(x, groups, "Add", "CrossReplica")

    with pytest.raises(EmulationError, match=r"XlaAllReduce .* is computed while the step runs"):
        replicas.run(four, function, rows())
