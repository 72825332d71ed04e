"""Tensors lie side by side at whole tiles, and come back out of a bucket as they were."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.grounds.tpu.collectives_test import shard_of
from tests.grounds.tpu.compiled import computed
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import columns
from tf_wu_shard.layout import TileLayout, tile_layout

pytestmark = pytest.mark.usefixtures("logical_cpus")

FOUR = (0, 1, 2, 3)

# What a tensor can look like to its layout.
LAYOUTS = {
    "even": tile_layout((64, 128), (4,), FOUR),
    "padded rows": tile_layout((61, 250), (4,), FOUR),
    "turned": tile_layout((128, 8, 16), (4,), FOUR),
    "in tiles": tile_layout((16, 512), (2, 2), FOUR),
    "flattened": tile_layout((7, 500), (4,), FOUR),
}


def numbered(*shape: int) -> np.ndarray:
    """Numbers from 1 on."""
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def test_each_of_several_begins_at_a_tile_and_one_alone_takes_its_own_width() -> None:
    three = [tile_layout((64, width), (4,), FOUR) for width in (250, 300, 128)]
    assert columns.beginnings(three) == ([0, 256, 640], 768)
    assert columns.beginnings(three[:1]) == ([0], 250)


@pytest.mark.parametrize("fill", [None, 7.0])
def test_what_no_tensor_covers_is_the_number_that_they_are_written_over(fill: float | None) -> None:
    def emit(at: Emitter, fed: list[Value]) -> list[Value]:
        number = None if fill is None else at.constant(fill, at.dtype(fed[0]))
        return [columns.side_by_side(at, fed, [0, 4], (2, 7), number)]

    ones, twos = np.full((2, 3), 1.0, np.float32), np.full((2, 2), 2.0, np.float32)
    (bucket,) = computed(emit, ones, twos)
    rest = fill or 0.0
    np.testing.assert_array_equal(bucket, [[1, 1, 1, rest, 2, 2, rest]] * 2)


def test_tiles_stand_by_row_of_tiles_then_by_column_then_by_tensor() -> None:
    # Two tensors of two columns of tiles each, and two rows of tiles: every tile has its number.
    tiles = np.arange(8, dtype=np.float32).reshape(2, 4)
    matrix = np.kron(tiles, np.ones((8, 128), np.float32))

    def emit(at: Emitter, fed: list[Value]) -> list[Value]:
        stacked = columns.tiles_of_rows(at, fed[0], 256, 2)
        return [stacked, columns.rows_of_tiles(at, stacked, 256, 2)]

    stacked, back = computed(emit, matrix)
    assert stacked[::8, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    np.testing.assert_array_equal(back, matrix)


def test_the_tiles_of_all_tensors_are_taken_apart_and_put_together_again() -> None:
    layouts = [tile_layout((16, 1024), (2, 2), FOUR)] * 2
    assert layouts[0].shard_shape(0) == (32, 128)
    given = np.kron(np.arange(8, dtype=np.float32)[:, None], np.ones((8, 128), np.float32))

    def emit(at: Emitter, fed: list[Value]) -> list[Value]:
        apart = columns.tiles_apart(at, fed[0], layouts)
        return [*apart, columns.tiles_together(at, apart, layouts)]

    first, second, together = computed(emit, given)
    assert (first[::8, 0].tolist(), second[::8, 0].tolist()) == ([0, 2, 4, 6], [1, 3, 5, 7])
    np.testing.assert_array_equal(together, given)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_whole_tensor_becomes_all_shards_and_back_whatever_the_padding_holds(
    layout: TileLayout,
) -> None:
    value = numbered(*layout.shape)
    wanted = np.concatenate([shard_of(value, layout, replica) for replica in range(4)])
    held = np.concatenate([shard_of(np.ones(layout.shape), layout, r) for r in range(4)])
    broken = np.where(held == 1, wanted, np.nan).astype(np.float32)

    def emit(at: Emitter, fed: list[Value]) -> list[Value]:
        return [
            columns.rows_of_whole(at, fed[0], layout),
            columns.whole_of_rows(at, fed[1], layout),
        ]

    rows, whole = computed(emit, value, broken)
    np.testing.assert_array_equal(rows, wanted)
    np.testing.assert_array_equal(whole, value)


def test_where_a_replicas_shard_begins_follows_from_which_it_holds() -> None:
    layout = TileLayout((32, 128), (0, 1), 4, 8, (2, 0, 3, 1))
    builder = GraphBuilder(())
    begin = columns.own_begin(builder.at("", "own"), layout)
    nodes = {node.name: node for node in builder.nodes}
    first, column = nodes[begin.op].input
    held, number, axis = (nodes[name] for name in nodes[first].input)
    assert tf.make_ndarray(held.attr["value"].tensor).tolist() == [16, 0, 24, 8]
    assert number.op == "XlaReplicaId"
    for zero in (axis, nodes[column]):
        assert tf.make_ndarray(zero.attr["value"].tensor) == 0
