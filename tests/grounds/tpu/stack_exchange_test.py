"""Each replica of a TPU program gets whole tensors of its own out of shards and gives them back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.grounds.tpu.collectives_test import (
    FLOAT,
    TORUSES,
    emitted,
    flattened,
    layouts_of,
    shard_of,
)
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import Torus
from tf_wu_shard.layout import TileLayout

SHAPES: dict[str, tuple[int, ...]] = {
    "rows": (64, 128),
    "padded rows": (129, 250),
    "other order": (512, 8, 64),
    "runs of rows cut into tiles": (16, 512),
    "flattened and padded": (1000, 37),
    "flattened in another order": (7, 500),
}

# How many tensors a replica has at a time, on each torus.
TURNS = [*zip(TORUSES.values(), (1, 2), strict=True)]

Fed = list[list[Value]]


def own_whole(dialect: TpuCluster, at: Emitter, fed: Fed, layouts: list[TileLayout]) -> Fed:
    shards = [own[0] for own in fed]
    return [[v] for v in dialect.stacks.own_whole(at, shards, layouts[0])]


def shards_of_all(dialect: TpuCluster, at: Emitter, fed: Fed, layouts: list[TileLayout]) -> Fed:
    own = [value[0] for value in fed]
    return [[v] for v in dialect.stacks.shards_of_all(at, own, layouts[0])]


def select_own(dialect: TpuCluster, at: Emitter, fed: Fed, layouts: list[TileLayout]) -> Fed:
    values = [value[0] for value in fed]
    shape = layouts[0].shape
    return [[v] for v in dialect.stacks.select_own(at, values, shape)]


def tensors(shape: tuple[int, ...], count: int) -> np.ndarray:
    return np.random.default_rng(6).standard_normal((count, *shape), np.float32)


def layout_and_tensors(
    shape: tuple[int, ...], torus: Torus, each: int
) -> tuple[TileLayout, np.ndarray]:
    (layout,) = layouts_of([shape], torus)
    return layout, tensors(shape, each * torus.num_replicas)


@pytest.mark.parametrize(("torus", "each"), TURNS, ids=TORUSES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_each_replica_has_its_own_tensors_whole_whatever_the_padding_holds(
    emulated: Any, torus: Torus, shape: tuple[int, ...], each: int
) -> None:
    layout, given = layout_and_tensors(shape, torus, each)
    replicas = range(torus.num_replicas)
    holds = [shard_of(np.ones(shape, bool), layout, r) for r in replicas]
    operands = [
        np.stack([np.where(holds[r], shard_of(one, layout, r), np.nan) for r in replicas])
        for one in given
    ]
    shards = [one.astype(np.float32) for one in operands]
    found = emitted(emulated, torus, [layout] * len(given), shards, own_whole)
    for (own,), place in zip(found, torus.held, strict=True):
        np.testing.assert_array_equal(own, flattened([*given[place * each : (place + 1) * each]]))


@pytest.mark.parametrize(("torus", "each"), TURNS, ids=TORUSES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_they_come_back_as_shards_of_all(
    emulated: Any, torus: Torus, shape: tuple[int, ...], each: int
) -> None:
    layout, given = layout_and_tensors(shape, torus, each)
    by_turn = given.reshape(torus.num_replicas, each, *shape)
    own = [np.stack([by_turn[place, n] for place in torus.held]) for n in range(each)]
    found = emitted(emulated, torus, [layout] * each, own, shards_of_all)
    for replica, (shards,) in enumerate(found):
        wanted = [shard_of(one, layout, replica) for one in given]
        np.testing.assert_array_equal(shards, flattened(wanted))


@pytest.mark.parametrize("torus", TORUSES.values(), ids=TORUSES)
def test_values_that_all_replicas_have_are_selected_by_the_same_turns(
    emulated: Any, torus: Torus
) -> None:
    layout, given = layout_and_tensors((2, 3), torus, 2)
    same = [np.repeat(one[None], torus.num_replicas, 0) for one in given]
    found = emitted(emulated, torus, [layout] * len(given), same, select_own)
    for (own,), place in zip(found, torus.held, strict=True):
        np.testing.assert_array_equal(own, flattened([*given[place * 2 : place * 2 + 2]]))


def test_a_stack_costs_one_all_to_all_over_all_replicas_each_way() -> None:
    torus = TORUSES["2x4"]
    (layout,) = layouts_of([(64, 128)], torus)
    dialect, builder = TpuCluster("cluster", torus), GraphBuilder((), lambda value: FLOAT)
    whole = dialect.stacks.own_whole(builder.at("", "there"), [Value("a")] * 16, layout)
    dialect.stacks.shards_of_all(builder.at("", "back"), whole, layout)
    assert [node.op for node in builder.nodes].count("AllToAll") == 2
