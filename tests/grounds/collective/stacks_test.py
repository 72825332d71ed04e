"""Each worker gets whole tensors of its own out of shards and gives them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.grounds.collective.collectives_test import group_of
from tests.grounds.dialect_test import run
from tests.nccl.lowering import runnable
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.collective.group import Member
from tf_wu_shard.grounds.collective.stacks import WorkerStacks
from tf_wu_shard.layout import Layout, flat_layout

pytestmark = pytest.mark.usefixtures("logical_cpus")

# How many workers, and how many tensors each has.
TURNS = [(2, 1), (2, 3), (3, 2)]

SHAPES = {"even": (12, 16), "a shorter last shard": (5, 29), "an empty last shard": (2, 13)}

FLOAT = tf.float32.as_datatype_enum

# What one worker emits, given its half of the exchange and its values.
Verb = Callable[[WorkerStacks, Emitter, Sequence[Value]], Sequence[Value]]


def half_of(member: Member, workers: int, rank: int) -> WorkerStacks:
    """What the worker of a rank emits."""
    return WorkerStacks(member, workers, lambda: rank)


def emitted(operands: list[list[np.ndarray]], verb: Verb) -> tuple[list[list[np.ndarray]], Any]:
    """Per worker, what a verb makes of its operands, `operands[t][r]`; and all nodes."""
    workers = len(operands[0])

    def each(at: Emitter, values: list[list[Value]]) -> list[list[Value]]:
        return [
            [*verb(half_of(member, workers, rank), at, [v[rank] for v in values])]
            for rank, member in enumerate(group_of(at, workers))
        ]

    return run(operands, each, runnable)


def tensors(shape: tuple[int, ...], count: int, dtype: Any = np.float32) -> list[np.ndarray]:
    random = np.random.default_rng(6)
    return [(10 * random.standard_normal(shape)).astype(dtype) for _ in range(count)]


def shards_of(tensor: np.ndarray, layout: Layout) -> list[np.ndarray]:
    vector = tensor.reshape(-1)
    return [vector[slice(*layout.bounds(shard))] for shard in range(layout.num_shards)]


@pytest.mark.parametrize(("workers", "each"), TURNS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_each_worker_has_its_own_tensors_whole(
    shape: tuple[int, ...], workers: int, each: int
) -> None:
    layout, given = flat_layout(shape, workers, 4), tensors(shape, each * workers)
    operands = [shards_of(tensor, layout) for tensor in given]
    found, nodes = emitted(operands, lambda own, at, values: own.own_whole(at, values, layout))
    for worker, own in enumerate(found):
        np.testing.assert_array_equal(own, given[worker * each : (worker + 1) * each])
    exchanges = [node for node in nodes if node.op.startswith("Collective")]
    assert [node.op for node in exchanges] == ["CollectiveAllToAllV2"] * workers


@pytest.mark.parametrize(("workers", "each"), TURNS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_they_come_back_as_shards_of_all(shape: tuple[int, ...], workers: int, each: int) -> None:
    layout, given = flat_layout(shape, workers, 4), tensors(shape, each * workers)
    own = [[given[worker * each + n] for worker in range(workers)] for n in range(each)]
    found, nodes = emitted(own, lambda own, at, values: own.shards_of_all(at, values, layout))
    for worker, shards in enumerate(found):
        for shard, tensor in zip(shards, given, strict=True):
            np.testing.assert_array_equal(shard, shards_of(tensor, layout)[worker])
    exchanges = [node for node in nodes if node.op.startswith("Collective")]
    assert [node.op for node in exchanges] == ["CollectiveAllToAllV2"] * workers


def test_values_that_all_workers_have_are_selected_by_the_same_turns() -> None:
    given = tensors((2, 3), 4)
    same = [[one, one] for one in given]
    found, nodes = emitted(same, lambda own, at, values: own.select_own(at, values, (2, 3)))
    np.testing.assert_array_equal(found, [given[:2], given[2:]])
    assert not [node for node in nodes if node.op.startswith("Collective")]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_shard_is_put_in_its_place_among_what_fills_the_rest(shape: tuple[int, ...]) -> None:
    layout, (given,) = flat_layout(shape, 3, 4), tensors(shape, 1)

    def verb(own: WorkerStacks, at: Emitter, values: Sequence[Value]) -> Sequence[Value]:
        fill = at.constant(-np.inf, FLOAT)
        return [own.embed_own(at, values[0], layout, fill)]

    found, _ = emitted([shards_of(given, layout)], verb)
    for worker, (whole,) in enumerate(found):
        wanted = np.full(given.size, -np.inf, np.float32)
        start, stop = layout.bounds(worker)
        wanted[start:stop] = given.reshape(-1)[start:stop]
        np.testing.assert_array_equal(whole, wanted.reshape(shape))


@pytest.mark.parametrize(
    "dtype", [tf.bfloat16.as_numpy_dtype, np.float16, np.float32, np.float64, np.int32, np.int64]
)
def test_every_type_that_is_carried_arrives(dtype: Any) -> None:
    layout, given = flat_layout((5, 29), 2, 2), tensors((5, 29), 2, dtype)
    operands = [shards_of(tensor, layout) for tensor in given]

    def verb(own: WorkerStacks, at: Emitter, values: Sequence[Value]) -> Sequence[Value]:
        assert own.carries(at.dtype(values[0]))
        return own.own_whole(at, values, layout)

    found, _ = emitted(operands, verb)
    for (own,), tensor in zip(found, given, strict=True):
        assert own.tobytes() == tensor.tobytes()


def test_what_no_all_to_all_carries_is_said() -> None:
    def verb(own: WorkerStacks, at: Emitter, values: Sequence[Value]) -> Sequence[Value]:
        assert not own.carries(tf.bool.as_datatype_enum)
        return values

    emitted([tensors((1,), 2)], verb)


def test_all_workers_exchange_the_same_in_the_same_order() -> None:
    layout = flat_layout((5, 29), 3, 4)
    graphs = []
    for rank in range(3):
        builder = GraphBuilder((), lambda value: FLOAT)
        at = builder.at("", "stack")
        (member,) = group_of(at, 1)
        stacks = half_of(member, 3, rank)
        whole = stacks.own_whole(at, [Value(f"shard_{n}") for n in range(6)], layout)
        own = stacks.select_own(at, [Value(f"value_{n}") for n in range(6)], (2, 2))
        stacks.shards_of_all(at, whole, layout)
        assert own == [Value(f"value_{rank * 2}"), Value(f"value_{rank * 2 + 1}")]
        graphs.append([n.name for n in builder.nodes if n.op.startswith("Collective")])
    assert graphs[0] == graphs[1] == graphs[2] and len(graphs[0]) == 2
