"""What shards add to a sum, and what they need of a tensor broadcast over all, in both dialects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.grounds.dialect_test import devices_of, run
from tests.grounds.tpu.collectives_test import TORUSES, emitted, layouts_of, shard_of
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import Torus
from tf_wu_shard.layout import TileLayout, flat_layout
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.weight_update.rewrite.own_shard import OwnShard

pytestmark = pytest.mark.usefixtures("logical_cpus")

# Tensors of which some shards begin within a row, hold several rows, or are empty.
FLAT = [(40, 7), (3, 200), (2, 5, 30), (9, 4)]
AXES = {2: [(0,), (1,), (0, 1)], 3: [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]}
MATRICES = {"padded": (129, 256), "stacked": (3, 3, 16, 128), "turned": (512, 8, 64)}


def numbers(shape: Sequence[int]) -> np.ndarray:
    """Whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(6).integers(-9, 99, shape).astype(np.float32)


@pytest.mark.parametrize("replicas", [2, 5])
@pytest.mark.parametrize("shape", FLAT, ids=str)
def test_runs_of_elements_add_up_to_the_sum(shape: tuple[int, ...], replicas: int) -> None:
    whole, layout = numbers(shape), flat_layout(shape, replicas, 4)
    dialect, devices = InProcess(in_this_process(devices_of(replicas))), devices_of(replicas)
    shards = [whole.reshape(-1)[slice(*layout.bounds(r))] for r in range(replicas)]

    def emit(at: Emitter, fed: list[list[Value]]) -> list[list[Value]]:
        return [
            [
                OwnShard(at.on(devices[r]), dialect, layout, r).contribution(shard, shape, axes)
                for r, shard in enumerate(fed[0])
            ]
            for axes in AXES[len(shape)]
        ]

    parts, nodes = run([shards], emit)
    for axes, own in zip(AXES[len(shape)], parts, strict=True):
        np.testing.assert_array_equal(np.sum(own, axis=0), whole.sum(axes))
    # Each replica works on its own device, on little more than its shard.
    assert {node.device for node in nodes} == set(devices)


@pytest.mark.parametrize("replicas", [2, 5])
@pytest.mark.parametrize("shape", FLAT, ids=str)
def test_a_run_of_elements_gets_its_part_of_what_is_broadcast(
    shape: tuple[int, ...], replicas: int
) -> None:
    layout = flat_layout(shape, replicas, 4)
    dialect, devices = InProcess(in_this_process(devices_of(replicas))), devices_of(replicas)
    smaller = [numbers(s) for s in (shape[-1:], (*shape[:-1], 1), (1, *shape[1:]), (1,), ())]

    def emit(at: Emitter, fed: list[list[Value]]) -> list[list[Value]]:
        return [
            [
                OwnShard(at.on(devices[r]), dialect, layout, r).broadcast(value, array.shape, shape)
                for r, value in enumerate(own)
            ]
            for own, array in zip(fed, smaller, strict=True)
        ]

    found, _ = run([[array] * replicas for array in smaller], emit)
    for array, own in zip(smaller, found, strict=True):
        wanted = np.broadcast_to(array, shape)
        np.testing.assert_array_equal(np.concatenate(own).reshape(shape), wanted)


@pytest.mark.parametrize("torus", TORUSES.values(), ids=TORUSES)
@pytest.mark.parametrize("shape", MATRICES.values(), ids=MATRICES)
def test_rows_of_a_tpu_add_up_to_the_sum_whatever_the_padding_holds(
    emulated: Any, torus: Torus, shape: tuple[int, ...]
) -> None:
    (layout,) = layouts_of([shape], torus)
    whole, axes = numbers(shape), [tuple(range(len(shape))), (0,), (len(shape) - 1,)]
    held = [shard_of(np.ones(shape, bool), layout, r) for r in range(torus.num_replicas)]
    own = [shard_of(whole, layout, r) for r in range(torus.num_replicas)]
    shards = np.where(np.stack(held), np.stack(own), np.float32("nan"))

    def verb(
        dialect: TpuCluster, at: Emitter, fed: list[list[Value]], lay: list[TileLayout]
    ) -> list[list[Value]]:
        own = OwnShard(at, dialect, lay[0], 0)
        return [[own.contribution(fed[0][0], shape, a)] for a in axes]

    parts = [part for (part,) in emitted(emulated, torus, [layout], [shards], verb)]
    wanted = np.concatenate([np.reshape(whole.sum(a), -1) for a in axes])
    np.testing.assert_array_equal(np.sum(parts, axis=0), wanted)


def test_rows_of_a_tpu_get_their_part_of_what_is_broadcast(emulated: Any) -> None:
    shape, torus = MATRICES["padded"], TORUSES["2x4"]
    (layout,) = layouts_of([shape], torus)
    row = numbers(shape[-1:])

    def verb(
        dialect: TpuCluster, at: Emitter, fed: list[list[Value]], lay: list[TileLayout]
    ) -> list[list[Value]]:
        own = OwnShard(at, dialect, lay[0], 0)
        return [[own.broadcast(fed[0][0], row.shape, shape)]]

    same = np.stack([row] * torus.num_replicas)
    for replica, (own,) in enumerate(emitted(emulated, torus, [layout], [same], verb)):
        wanted = shard_of(np.broadcast_to(row, shape), layout, replica)
        np.testing.assert_array_equal(own, wanted.reshape(-1))
