"""The verbs of a TPU cluster do what they say, in programs that emulated replicas run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.emulation.replicas import run
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import all_gather_module
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import Torus, one_group, torus_of
from tf_wu_shard.layout import TILE, TileLayout, tile_layout
from tf_wu_shard.placement import Combine

FLOAT = tf.float32.as_datatype_enum

EIGHT = torus_of([(0, row, column, 0) for row in range(2) for column in range(4)])
# The same box, its replicas numbered in no order.
SHUFFLED = torus_of([(1, 3), (0, 0), (1, 0), (0, 2), (1, 1), (0, 3), (0, 1), (1, 2)])
TORUSES = {"one group": one_group(4), "2x4": SHUFFLED}

# Shapes that travel together have their rows alike: leading dimensions in the TPU's order.
BUCKETS: dict[str, list[tuple[int, ...]]] = {
    "one matrix": [(64, 128)],
    "padded rows": [(129, 256)],
    "side by side": [(64, 250), (64, 300), (64, 128)],
    "padded and side by side": [(61, 250), (61, 500)],
    "a stack of matrices": [(3, 3, 16, 128), (3, 3, 16, 250)],
    "other order": [(512, 8, 64)],
    "other order side by side": [(120, 8, 16), (250, 8, 16)],
    "one row": [(1, 4096)],
    "runs of rows cut into tiles": [(16, 512)],
    "runs cut into tiles side by side": [(12, 1024), (12, 1024), (12, 1024)],
    "a vector": [(16_384,)],
    "a padded vector": [(20_001,)],
    "flattened in another order": [(1000, 37)],
    "flattened, of any sizes": [(1000, 37), (20_001,), (3, 3, 40, 40), (7, 5000)],
}

Verb = Callable[[TpuCluster, Emitter, list[list[Value]], list[TileLayout]], list[list[Value]]]


def axis_sizes(torus: Torus) -> list[int]:
    return [len(groups[0]) for groups in torus.axes]


def layouts_of(shapes: Sequence[tuple[int, ...]], torus: Torus) -> list[TileLayout]:
    layouts = [tile_layout(shape, axis_sizes(torus), torus.held) for shape in shapes]
    assert len({layout.bucket_kind for layout in layouts}) == 1, "not one bucket"
    return layouts


def shard_of(array: np.ndarray, layout: TileLayout, replica: int) -> np.ndarray:
    """What a replica holds of a tensor; its padding is zeros."""
    padded = np.zeros((layout.padded_rows, layout.columns), array.dtype)
    padded.flat[: layout.size] = array.transpose(layout.order).flat
    if layout.tile_shards > 1:
        tiles = padded.reshape(-1, TILE[0], layout.columns // TILE[1], TILE[1])
        padded = tiles.transpose(0, 2, 1, 3).reshape(-1, TILE[1])
    return padded.reshape(layout.num_shards, *layout.shard_shape(replica))[layout.held[replica]]


def emitted(
    strategies: Callable[[int], tf.distribute.TPUStrategy],
    torus: Torus,
    layouts: list[TileLayout],
    operands: Sequence[np.ndarray],
    verb: Verb,
) -> list[list[np.ndarray]]:
    """Runs a verb on every replica, `operands[t][r]` being replica r's tensor t: its results."""
    dialect = TpuCluster("cluster", torus)

    @tf.autograph.experimental.do_not_convert
    def replica(*tensors: tf.Tensor) -> tf.Tensor:
        builder = GraphBuilder((), lambda value: FLOAT)
        fed = [[Value(f"in{number}")] for number in range(len(tensors))]
        results = verb(dialect, builder.at("", "verb"), fed, layouts)
        made = {f"in{number}": tensor for number, tensor in enumerate(tensors)}
        for node in builder.nodes:
            graph = tf.compat.v1.get_default_graph()
            inputs = [made[name.removesuffix(":0")] for name in node.input]
            attributes = {name: value for name, value in node.attr.items() if name[0] != "_"}
            made[node.name] = graph.create_op(node.op, inputs, attrs=attributes).outputs[0]
        # One tensor comes back from each replica.
        return tf.concat([tf.reshape(made[own[0].op], [-1]) for own in results], 0)

    flat = run(strategies(torus.num_replicas), replica, *operands)
    return [[row] for row in flat]


def contributions(shapes: Sequence[tuple[int, ...]], replicas: int) -> list[np.ndarray]:
    """Whole numbers, whose sums are exact in any order; [replicas, *shape] each."""
    random = np.random.default_rng(4)
    return [random.integers(-99, 99, (replicas, *shape)).astype(np.float32) for shape in shapes]


def flattened(tensors: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([tensor.reshape(-1) for tensor in tensors])


def reduce_scatter(
    dialect: TpuCluster, at: Emitter, fed: list[list[Value]], layouts: list[TileLayout]
) -> list[list[Value]]:
    return dialect.reduce_scatter(at, fed, layouts)


def all_gather(
    dialect: TpuCluster, at: Emitter, fed: list[list[Value]], layouts: list[TileLayout]
) -> list[list[Value]]:
    return dialect.all_gather(at, fed, layouts)


def all_reduce(
    dialect: TpuCluster, at: Emitter, fed: list[list[Value]], layouts: list[TileLayout]
) -> list[list[Value]]:
    shapes = [layout.shape for layout in layouts]
    return dialect.all_reduce(at, fed, shapes)


def slice_own(
    dialect: TpuCluster, at: Emitter, fed: list[list[Value]], layouts: list[TileLayout]
) -> list[list[Value]]:
    return [
        [dialect.slice_own(at.within("own"), own[0], layout, 0)]
        for own, layout in zip(fed, layouts, strict=True)
    ]


@pytest.mark.parametrize("torus", TORUSES.values(), ids=TORUSES)
@pytest.mark.parametrize("shapes", BUCKETS.values(), ids=BUCKETS)
def test_reduce_scatter_leaves_each_replica_its_rows_of_the_sums(
    emulated: Any, torus: Torus, shapes: list[tuple[int, ...]]
) -> None:
    layouts = layouts_of(shapes, torus)
    operands = contributions(shapes, torus.num_replicas)
    found = emitted(emulated, torus, layouts, operands, reduce_scatter)
    for replica, (own,) in enumerate(found):
        wanted = [
            shard_of(o.sum(0), lay, replica) for o, lay in zip(operands, layouts, strict=True)
        ]
        np.testing.assert_array_equal(own, flattened(wanted))


@pytest.mark.parametrize("torus", TORUSES.values(), ids=TORUSES)
@pytest.mark.parametrize("shapes", BUCKETS.values(), ids=BUCKETS)
def test_all_gather_puts_the_tensors_together_whatever_the_padding_holds(
    emulated: Any, torus: Torus, shapes: list[tuple[int, ...]]
) -> None:
    layouts = layouts_of(shapes, torus)
    replicas = torus.num_replicas
    wanted = [one[0] for one in contributions(shapes, replicas)]
    shards = []
    for tensor, layout in zip(wanted, layouts, strict=True):
        own = np.stack([shard_of(tensor, layout, r) for r in range(replicas)])
        holds = np.stack(
            [shard_of(np.ones(layout.shape, bool), layout, r) for r in range(replicas)]
        )
        shards.append(np.where(holds, own, np.float32("nan")))
    for (own,) in emitted(emulated, torus, layouts, shards, all_gather):
        np.testing.assert_array_equal(own, flattened(wanted))


@pytest.mark.parametrize("torus", TORUSES.values(), ids=TORUSES)
@pytest.mark.parametrize("shapes", BUCKETS.values(), ids=BUCKETS)
def test_slice_own_is_the_shard_that_reduce_scatter_would_leave(
    emulated: Any, torus: Torus, shapes: list[tuple[int, ...]]
) -> None:
    layouts = layouts_of(shapes, torus)
    same = [np.repeat(one[:1], torus.num_replicas, 0) for one in contributions(shapes, 8)]
    for replica, (own,) in enumerate(emitted(emulated, torus, layouts, same, slice_own)):
        wanted = [shard_of(o[0], lay, replica) for o, lay in zip(same, layouts, strict=True)]
        np.testing.assert_array_equal(own, flattened(wanted))


def test_all_reduce_gives_every_replica_the_whole_sums(emulated: Any) -> None:
    shapes: list[tuple[int, ...]] = [(5, 3), (8, 130)]
    torus = one_group(4)
    operands = contributions(shapes, 4)
    layouts = [tile_layout(shape, (4,), torus.held) for shape in shapes]
    for (own,) in emitted(emulated, torus, layouts, operands, all_reduce):
        np.testing.assert_array_equal(own, flattened([o.sum(0) for o in operands]))


def test_all_reduce_gives_every_replica_the_largest_and_the_smallest_elements(
    emulated: Any,
) -> None:
    shapes, torus = [(5, 3)], one_group(4)
    operands = contributions(shapes, 4)
    layouts = [tile_layout(shapes[0], (4,), torus.held)]

    def verb(
        dialect: TpuCluster, at: Emitter, fed: list[list[Value]], lay: list[TileLayout]
    ) -> list[list[Value]]:
        return [
            dialect.all_reduce(at, fed, shapes, combine)[0]
            for combine in (Combine.MAX, Combine.MIN)
        ]

    wanted = flattened([operands[0].max(0), operands[0].min(0)])
    for (own,) in emitted(emulated, torus, layouts, operands, verb):
        np.testing.assert_array_equal(own, wanted)


@pytest.mark.parametrize(("torus", "axes"), [(one_group(8), 1), (EIGHT, 2)])
def test_a_bucket_costs_one_collective_for_each_axis(torus: Torus, axes: int) -> None:
    dialect = TpuCluster("cluster", torus)
    shapes: list[tuple[int, ...]] = [(64, 250), (64, 300)]
    for verb, op_type in [(reduce_scatter, "XlaReduceScatter"), (all_gather, "XlaCallModule")]:
        builder = GraphBuilder((), lambda value: FLOAT)
        layouts = layouts_of(shapes, torus)
        verb(dialect, builder.at("", "verb"), [[Value("a")], [Value("b")]], layouts)
        assert [node.op for node in builder.nodes].count(op_type) == axes


def needs(builder: GraphBuilder, name: str) -> set[str]:
    """The op and all that it needs, by name."""
    nodes = {node.name: node for node in builder.nodes}
    found, stack = set(), [name]
    while stack:
        own = stack.pop().removesuffix(":0").lstrip("^")
        if own in nodes and own not in found:
            found.add(own)
            stack += nodes[own].input
    return found


@pytest.mark.parametrize("shapes", [[(64, 250), (64, 300)], [(20_001,), (7, 5000)]], ids=str)
def test_a_bucket_is_filled_when_the_one_before_has_been_scattered(
    shapes: list[tuple[int, ...]],
) -> None:
    dialect, builder = TpuCluster("cluster", one_group(8)), GraphBuilder((), lambda value: FLOAT)
    layouts = layouts_of(shapes, one_group(8))
    values = [[Value("a")], [Value("b")]]
    for scope in ("first", "second"):
        dialect.reduce_scatter(builder.at("", scope), values, layouts)
    scatters = [node.name for node in builder.nodes if node.op == "XlaReduceScatter"]
    assert scatters[0] in needs(builder, scatters[1])
    # A graph of its own begins anew.
    other = GraphBuilder((), lambda value: FLOAT)
    dialect.reduce_scatter(other.at("", "third"), values, layouts)
    assert not any(name.startswith("second") for node in other.nodes for name in node.input)


@pytest.mark.parametrize("torus", TORUSES.values(), ids=TORUSES)
def test_what_the_bucket_before_held_reaches_no_shard(emulated: Any, torus: Torus) -> None:
    shapes = BUCKETS["padded and side by side"]
    layouts = layouts_of(shapes, torus)
    operands = contributions(shapes, torus.num_replicas)
    broken = [np.full_like(operand, np.nan) for operand in operands]

    def both(
        dialect: TpuCluster, at: Emitter, fed: list[list[Value]], two: list[TileLayout]
    ) -> list[list[Value]]:
        reduce_scatter(dialect, at, fed[:2], two[:2])
        return reduce_scatter(dialect, at, fed[2:], two[2:])

    found = emitted(emulated, torus, layouts * 2, [*broken, *operands], both)
    for replica, (own,) in enumerate(found):
        wanted = [
            shard_of(o.sum(0), lay, replica) for o, lay in zip(operands, layouts, strict=True)
        ]
        np.testing.assert_array_equal(own, flattened(wanted))


def test_the_groups_of_an_all_gather_run_back_through_the_axes() -> None:
    builder = GraphBuilder((), lambda value: FLOAT)
    layouts = layouts_of([(64, 128)], EIGHT)
    TpuCluster("cluster", EIGHT).all_gather(builder.at("", "verb"), [[Value("a")]], layouts)
    modules = [node.attr["module"].s.decode() for node in builder.nodes if node.op[:4] == "XlaC"]
    found = [all_gather_module.read(module) for module in modules]
    assert [one.groups for one in found if one is not None] == list(reversed(EIGHT.axes))


def test_everything_but_the_way_in_of_handles_belongs_to_the_cluster() -> None:
    dialect = TpuCluster("cluster", one_group(2))
    builder = GraphBuilder(())
    packed, handle = dialect.shard_handle(builder.at("", "w/shard_0"))
    builder.at("", "").op("ReadVariableOp", [handle], "read", dtype=FLOAT)
    dialect.adopt(builder.nodes)
    clusters = {node.name: node.attr["_tpu_replicate"].s for node in builder.nodes}
    assert clusters == {packed.op: b"", handle.op: b"", "read": b"cluster"}


def test_variables_below_a_tile_for_every_replica_stay_whole_by_default() -> None:
    assert TpuCluster("cluster", one_group(8)).preferences.min_elements == 8 * 1024
