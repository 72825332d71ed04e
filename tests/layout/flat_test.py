"""A flat layout cuts a tensor into aligned runs, so that every element is held once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as draw

from tf_wu_shard.layout import (
    ALIGNMENT_BYTES,
    Layout,
    flat_layout,
    of_size,
)

SHAPES = draw.lists(draw.integers(0, 40), max_size=3).map(tuple)
SHARDS = draw.integers(1, 12)
BYTES = draw.sampled_from([1, 2, 4, 8, 16])


@given(SHAPES, SHARDS, BYTES)
def test_the_runs_cover_every_element_once_and_in_order(
    shape: tuple[int, ...], shards: int, item_bytes: int
) -> None:
    layout = flat_layout(shape, shards, item_bytes)
    held = [element for r in range(shards) for element in range(*layout.bounds(r))]
    assert held == list(range(math.prod(shape)))


@given(SHAPES, SHARDS, BYTES)
def test_every_run_starts_on_a_boundary_or_where_the_tensor_ends(
    shape: tuple[int, ...], shards: int, item_bytes: int
) -> None:
    layout = flat_layout(shape, shards, item_bytes)
    for shard in range(shards):
        start, _ = layout.bounds(shard)
        assert start * item_bytes % ALIGNMENT_BYTES == 0 or start == layout.size


@given(SHAPES, SHARDS, BYTES)
def test_the_longest_run_exceeds_an_even_cut_by_less_than_a_boundary(
    shape: tuple[int, ...], shards: int, item_bytes: int
) -> None:
    layout = flat_layout(shape, shards, item_bytes)
    assert (layout.shard_size - layout.size / shards) * item_bytes < ALIGNMENT_BYTES + item_bytes
    assert layout.padding == shards * layout.shard_size - layout.size >= 0


@given(SHAPES, SHARDS, BYTES)
def test_a_shard_is_a_vector_as_long_as_its_run(
    shape: tuple[int, ...], shards: int, item_bytes: int
) -> None:
    layout = flat_layout(shape, shards, item_bytes)
    lengths = [layout.shard_shape(r)[0] for r in range(shards)]
    assert sum(lengths) == layout.size
    assert max(lengths) <= layout.shard_size
    # The shorter ones stand last.
    assert lengths == sorted(lengths, reverse=True)


def test_a_shard_that_does_not_exist_has_no_bounds() -> None:
    layout = Layout((8,), 2, 4)
    for shard in (-1, 2):
        with pytest.raises(IndexError, match=f"shard {shard} of 2"):
            layout.bounds(shard)


def test_a_layout_that_cannot_hold_its_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="2 shards of 3 elements cannot hold"):
        Layout((7,), 2, 3)
    with pytest.raises(ValueError, match="at least 1"):
        Layout((), 0, 1)


def test_a_layout_is_printed_with_its_padding_where_it_has_any() -> None:
    assert str(Layout((5, 6), 4, 8)) == "flat 30/4 pad 2"
    assert str(Layout((4, 8), 4, 8)) == "flat 32/4"


def test_of_several_layouts_the_one_of_a_size_is_found() -> None:
    matrix, side = flat_layout((6, 7), 4, 4), flat_layout((7, 7), 4, 4)
    assert [of_size((matrix, side), size) for size in (49, 42)] == [side, matrix]
    # Of one alone everything is cut so, a few rows of a table too.
    assert of_size((matrix,), 14) == matrix
