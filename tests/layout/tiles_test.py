"""A tile layout cuts a tensor into equal runs of whole tiles that hold every element once."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as draw

from tf_wu_shard.layout import (
    TILE,
    TileLayout,
    tile_layout,
    tile_order,
)
from tf_wu_shard.layout.tiles import WORTH_FLATTENING

MATRICES = draw.lists(draw.integers(1, 300), min_size=2, max_size=5).map(tuple)
TORUSES = draw.sampled_from(
    [(1,), (2,), (4,), (8,), (2, 4), (4, 4), (16, 16), (4, 4, 4)],
)
ANY_SHAPES = draw.one_of(MATRICES, draw.tuples(draw.integers(0, 10**7)), draw.just(()))

# How libtpu's compiler laid out 4-byte arguments of these shapes.
MEASURED = {
    (512, 8, 64): (1, 2, 0),
    (768, 12, 64): (1, 2, 0),
    (4096, 32, 128): (0, 1, 2),
    (512, 1000): (1, 0),
    (1000, 512): (0, 1),
    (1000, 37): (1, 0),
    (3, 3, 64, 128): (0, 1, 2, 3),
    (1, 1, 256, 64): (0, 1, 3, 2),
    (100, 300): (1, 0),
}


@pytest.mark.parametrize("shape", MEASURED, ids=str)
def test_the_dimensions_are_ordered_as_the_tpu_compiler_orders_them(shape: tuple[int, ...]) -> None:
    assert tile_order(shape) == MEASURED[shape]


@pytest.mark.parametrize("shape", [(), (0,), (7,)], ids=str)
def test_scalars_and_vectors_keep_their_order(shape: tuple[int, ...]) -> None:
    assert tile_order(shape) == tuple(range(len(shape)))


@given(MATRICES)
def test_no_other_last_dimension_pads_the_tiles_less(shape: tuple[int, ...]) -> None:
    def tiles(order: tuple[int, ...]) -> int:
        *rest, rows, columns = (shape[d] for d in order)
        whole = math.ceil(rows / TILE[0]) * math.ceil(columns / TILE[1])
        return math.prod(rest) * whole

    chosen = tile_order(shape)
    kept = [d for d in range(len(shape)) if d != chosen[-1]]
    assert list(chosen[:-1]) == kept
    for last in range(len(shape)):
        other = (*(d for d in range(len(shape)) if d != last), last)
        assert tiles(chosen) <= tiles(other)


def cut_for(shape: tuple[int, ...], torus: tuple[int, ...]) -> TileLayout:
    return tile_layout(shape, torus, tuple(range(math.prod(torus))))


@given(ANY_SHAPES, TORUSES)
def test_every_shard_is_as_many_whole_tiles_of_rows(
    shape: tuple[int, ...], torus: tuple[int, ...]
) -> None:
    layout = cut_for(shape, torus)
    shards = math.prod(torus)
    shapes = {layout.shard_shape(r) for r in range(shards)}
    assert len(shapes) == 1
    assert math.prod(*shapes) == layout.shard_elements
    assert layout.run_rows % TILE[0] == 0
    assert (layout.rows - 1) * layout.columns < layout.size or layout.size == 0
    assert layout.size == math.prod(shape) <= layout.rows * layout.columns
    # One tile of rows less in each run would not hold the tensor.
    assert 0 <= layout.padded_rows - layout.rows < layout.num_runs * TILE[0]
    assert layout.padding == shards * layout.shard_elements - layout.size


@given(ANY_SHAPES, TORUSES)
def test_shards_take_little_more_memory_than_their_elements(
    shape: tuple[int, ...], torus: tuple[int, ...]
) -> None:
    layout = cut_for(shape, torus)
    tile = math.prod(TILE)
    fewest = -(-layout.size // (layout.num_shards * tile)) * tile
    assert layout.shard_elements <= layout.stored_elements <= WORTH_FLATTENING * fewest
    if layout.flattened:
        assert layout.stored_elements == fewest
        assert layout.padding < layout.num_shards * tile


@given(MATRICES)
def test_the_ordered_shape_holds_the_matrix(shape: tuple[int, ...]) -> None:
    layout = TileLayout(shape, tile_order(shape), 1, 8 * math.prod(shape), (0,))
    assert sorted(layout.ordered_shape) == sorted(shape)
    assert layout.ordered_shape[-1] == layout.columns
    assert math.prod(layout.ordered_shape[:-1]) == layout.rows


FLATTENED = [(1_000_000,), (1_000_003,), (1000, 37), (3, 3, 64, 64), (7, 1_000_000), (50_001,)]


@pytest.mark.parametrize("shape", FLATTENED, ids=str)
def test_vectors_and_what_rows_would_pad_are_flattened(shape: tuple[int, ...]) -> None:
    layout = cut_for(shape, (4, 4))
    assert layout.flattened
    assert layout.columns == TILE[1]
    assert layout.ordered_shape == tuple(shape[d] for d in tile_order(shape))
    assert layout.bucket_kind == cut_for((2_000_000,), (4, 4)).bucket_kind


@pytest.mark.parametrize("shape", [(512, 8, 64), (32768, 512), (4096, 1024), (1000, 1000)], ids=str)
def test_what_rows_pad_little_stays_in_rows(shape: tuple[int, ...]) -> None:
    assert not cut_for(shape, (4, 4)).flattened


def test_a_tensor_without_elements_has_no_rows() -> None:
    for shape in [(0, 5), (0,), (3, 0)]:
        layout = tile_layout(shape, (2,), (0, 1))
        assert (layout.rows, layout.size, layout.shard_elements) == (0, 0, 0)


def test_an_order_that_leaves_a_dimension_out_is_refused() -> None:
    for order in [(0,), (0, 0), (1, 2)]:
        with pytest.raises(ValueError, match="does not order the dimensions of"):
            TileLayout((4, 8), order, 2, 8, (0, 1))


def test_replicas_that_hold_the_same_run_are_refused() -> None:
    for held in [(0, 0), (0,), (1, 2)]:
        with pytest.raises(ValueError, match="does not give 2 replicas a shard each"):
            TileLayout((4, 8), (0, 1), 2, 8, held)


def test_shards_that_cannot_hold_the_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="2 runs of 8 rows cannot hold"):
        TileLayout((17, 8), (0, 1), 2, 8, (0, 1))


def test_a_shard_of_rows_that_does_not_exist_has_no_shape() -> None:
    layout = tile_layout((16, 8), (2,), (0, 1))
    for shard in (-1, 2):
        with pytest.raises(IndexError, match=f"shard {shard} of 2"):
            layout.shard_shape(shard)


def test_every_order_of_holding_is_allowed() -> None:
    for held in itertools.permutations(range(3)):
        assert tile_layout((16, 8), (3,), held).held == held


def test_a_row_layout_is_printed_with_its_padding_where_it_has_any() -> None:
    assert str(tile_layout((129, 256), (4,), (0, 1, 2, 3))) == "rows 129x256/4 pad 7936"
    assert str(tile_layout((32, 128), (4,), (0, 1, 2, 3))) == "rows 32x128/4"
    assert str(tile_layout((5000,), (4,), (0, 1, 2, 3))) == "tiles 5000/4 pad 3192"


def test_where_rows_run_out_runs_are_cut_into_tiles() -> None:
    held = tuple(range(256))
    layout = tile_layout((512, 2048), (16, 16), held)
    assert (layout.run_rows, layout.tile_shards, layout.padding) == (32, 16, 0)
    assert layout.shard_shape(0) == (32 * 2048 // 16 // TILE[1], TILE[1])
    assert str(layout) == "rows 512x2048/16x16"
    # There are rows enough for all: no run is cut.
    assert tile_layout((32768, 512), (16, 16), held).tile_shards == 1


def test_only_whole_tiles_are_dealt_out() -> None:
    # 300 columns fill no whole number of tiles, so the rows are padded instead.
    layout = tile_layout((16, 300), (2, 4), tuple(range(8)))
    assert (layout.tile_shards, layout.run_rows) == (1, 8)
    with pytest.raises(ValueError, match="3 parts do not cut runs of 4 tiles"):
        TileLayout((16, 256), (0, 1), 6, 16, tuple(range(6)), 3)
