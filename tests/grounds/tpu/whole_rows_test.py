"""Cutting and joining as ops of a graph do what the same does with values."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import whole_rows
from tf_wu_shard.layout import TileLayout, tile_layout
from tf_wu_shard.storage import parts

LAYOUTS = {
    "even": tile_layout((64, 128), (4,), (0, 1, 2, 3)),
    "padded": tile_layout((60, 130), (4,), (0, 1, 2, 3)),
    "turned": tile_layout((512, 8, 64), (2, 2), (0, 2, 1, 3)),
    "in tiles": tile_layout((16, 1024), (2, 4), (5, 1, 7, 3, 4, 0, 6, 2)),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_graph_cuts_and_joins_as_eager_code_does(layout: TileLayout) -> None:
    value = np.random.default_rng(0).standard_normal(layout.shape, np.float32)
    builder = GraphBuilder(["value"], lambda value: FLOAT32)
    shards = whole_rows.cut(builder.at("", "cut"), Value("value"), layout)
    whole = whole_rows.joined(builder.at("", "join"), shards, layout)
    with tf.Graph().as_default() as graph:
        tf.compat.v1.placeholder(tf.float32, name="value")
        graph_def = graph.as_graph_def()
    graph_def.node.extend(builder.nodes)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        names = [f"{v.op}:{v.index}" for v in (*shards, whole)]
        fetches = tf.import_graph_def(graph_def, return_elements=names, name="")
        *cut, joined = session.run(fetches, {"value:0": value})
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(fetches, {"value:0": value.reshape((-1, 2))})
    np.testing.assert_array_equal(joined, value)
    for one, other in zip(cut, parts.cut_all(tf.constant(value), layout), strict=True):
        np.testing.assert_array_equal(one, other.numpy())


def test_one_of_the_layouts_cuts_runs_into_tiles() -> None:
    assert LAYOUTS["in tiles"].tile_shards > 1
