"""Flattened tensors lie one above the other in each run of a bucket's rows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.grounds.tpu.compiled import computed
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import stacked
from tf_wu_shard.grounds.tpu.torus import Groups
from tf_wu_shard.layout import TileLayout, tile_layout

pytestmark = pytest.mark.usefixtures("logical_cpus")

FLOAT = tf.float32.as_datatype_enum

FOUR = (0, 1, 2, 3)
AXES: list[Groups] = [((0, 2), (1, 3)), ((0, 1), (2, 3))]

# Runs of 8 and of 16 rows.
SMALL = tile_layout((3000,), (4,), FOUR)
LARGE = tile_layout((8000,), (4,), FOUR)
BOTH = [LARGE, SMALL]


def rows(numbers: list[float]) -> np.ndarray:
    """Rows of 128 equal numbers, eight of each."""
    return np.kron(np.asarray(numbers, np.float32)[:, None], np.ones((8, 128), np.float32))


def numbers(matrix: np.ndarray) -> list[float]:
    """Of what `rows` made, the numbers."""
    found: list[float] = matrix.reshape(-1, 8, 128)[:, 0, 0].tolist()
    return found


def test_the_layouts_are_flattened_and_of_different_heights() -> None:
    assert SMALL.flattened and LARGE.flattened
    assert (SMALL.run_rows, LARGE.run_rows) == (8, 16)


@pytest.mark.parametrize("layout", [SMALL, tile_layout((4096,), (4,), FOUR)], ids=str)
def test_a_tensor_fills_its_rows_in_order_and_zeros_the_rest(layout: TileLayout) -> None:
    value = np.arange(1, 1 + layout.size, dtype=np.float32)

    def emit(at: Emitter, fed: list[Value]) -> list[Value]:
        matrix = stacked.flattened(at, fed[0], layout)
        return [matrix, stacked.unflattened(at, matrix, layout)]

    matrix, back = computed(emit, value)
    assert matrix.shape == (layout.padded_rows, 128)
    np.testing.assert_array_equal(matrix.reshape(-1)[: layout.size], value)
    assert not matrix.reshape(-1)[layout.size :].any()
    np.testing.assert_array_equal(back, value)


def test_every_run_of_a_bucket_holds_that_run_of_every_tensor() -> None:
    def emit(at: Emitter, fed: list[Value]) -> list[Value]:
        bucket = stacked.runs_together(at, fed, BOTH, 2)
        return [bucket, *stacked.runs_apart(at, bucket, BOTH, 2)]

    bucket, large, small = computed(emit, rows([11, 12, 13, 14]), rows([1, 2]))
    assert numbers(bucket) == [11, 12, 1, 13, 14, 2]
    assert (numbers(small), numbers(large)) == ([1, 2], [11, 12, 13, 14])


def test_a_tensor_alone_is_its_own_bucket() -> None:
    builder = GraphBuilder((), lambda value: FLOAT)
    at, alone = builder.at("", "run"), Value("alone")
    assert stacked.runs_together(at, [alone], [SMALL], 4) == alone
    assert stacked.runs_apart(at, alone, [SMALL], 4) == [alone]
    assert builder.nodes == []


def test_a_bucket_is_scattered_along_one_axis_after_the_other_over_what_fills_it() -> None:
    builder = GraphBuilder((), lambda value: FLOAT)
    at = builder.at("", "sum")
    fill = Value("fill")
    found = stacked.reduce_scatter(at, [Value("a"), Value("b")], BOTH, AXES, fill)
    nodes = {node.name: node for node in builder.nodes}
    scatters = [node for node in builder.nodes if node.op == "XlaReduceScatter"]
    groups = [tf.make_ndarray(nodes[s.input[1]].attr["value"].tensor).tolist() for s in scatters]
    assert groups == [[[0, 2], [1, 3]], [[0, 1], [2, 3]]]
    assert scatters[1].input[0] == scatters[0].name
    assert nodes[found.op].input[0] == scatters[1].name
    (filled,) = (node for node in builder.nodes if node.op == "Fill")
    assert filled.input[1] == "fill"
    # All runs of both: four of 8 + 16 rows.
    shape = tf.make_ndarray(nodes[filled.input[0]].attr["value"].tensor)
    assert shape.tolist() == [4, 24, 128]


def test_shards_are_gathered_back_through_the_axes_in_growing_runs() -> None:
    builder = GraphBuilder((), lambda value: FLOAT)
    own = [Value("a"), Value("b")]
    whole = stacked.all_gather(builder.at("", "whole"), own, BOTH, AXES)
    assert len(whole) == 2
    gathers = [node for node in builder.nodes if node.op == "XlaCallModule"]
    shapes = [[d.size for d in node.attr["Sout"].list.shape[0].dim] for node in gathers]
    assert shapes == [[48, 128], [96, 128]]
    texts = [node.attr["module"].s.decode() for node in gathers]
    assert "[[0, 1], [2, 3]]" in texts[0] and "[[0, 2], [1, 3]]" in texts[1]
