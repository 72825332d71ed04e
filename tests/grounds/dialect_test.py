"""Both dialects do what the verbs say, and agree with each other bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.reference.collectives import Reference
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.replicas import Replicas, in_this_process

FLOAT = tf.float32.as_datatype_enum
DIALECTS: list[Callable[[Replicas], Dialect]] = [InProcess, Reference]
SHAPES = [[(5, 29)], [(16, 20)], [(48,)], [(40,), (), (3, 7)], [(1,), (16,), (2, 40)], [(2,), (3,)]]

pytestmark = pytest.mark.usefixtures("logical_cpus")

# From the operands of every replica to the verb's results.
Emit = Callable[[Emitter, list[list[Value]]], list[list[Value]]]


def devices_of(replicas: int) -> tuple[str, ...]:
    return tuple(f"/job:localhost/replica:0/task:0/device:CPU:{r}" for r in range(replicas))


def run(
    operands: list[list[np.ndarray]],
    emit: Emit,
    lowered: Callable[[list[Any]], list[Any]] = list,
) -> tuple[list[list[np.ndarray]], list[Any]]:
    """Emits ops after one Const per operand and runs them; the results and the emitted nodes."""
    replicas = len(operands[0])
    builder = GraphBuilder(())
    fed = []
    for number, tensors in enumerate(operands):
        row = []
        for replica, array in enumerate(tensors):
            node = tf.compat.v1.NodeDef(
                name=builder.unique(f"in{number}_{replica}"),
                op="Const",
                device=devices_of(replicas)[replica],
            )
            node.attr["dtype"].type = tf.as_dtype(array.dtype).as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array))
            row.append(builder.add(node))
        fed.append(row)
    before = len(builder.nodes)
    results = emit(builder.at("", "verb"), fed)
    graph_def = tf.compat.v1.GraphDef(node=lowered(builder.nodes))
    names = [f"{v.op}:{v.index}" for row in results for v in row]
    pruned = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(graph_def, name=""), []
    )
    found = pruned.prune([], names)()
    values = iter(np.asarray(v) for v in found)
    return [[next(values) for _ in row] for row in results], builder.nodes[before:]


def contributions(shapes: list[tuple[int, ...]], replicas: int) -> list[list[np.ndarray]]:
    random = np.random.default_rng(11)
    return [
        [np.asarray(random.normal(size=shape), np.float32) for _ in range(replicas)]
        for shape in shapes
    ]


def in_order(terms: Sequence[np.ndarray]) -> np.ndarray:
    """The sum, replica 0 first, rounded after every addition."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("replicas", [2, 3, 8])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_reduce_scatter_gives_each_replica_its_shard_of_the_sums(
    dialect: Callable[[Replicas], Dialect], replicas: int, shapes: list[tuple[int, ...]]
) -> None:
    layouts = [flat_layout(shape, replicas, 4) for shape in shapes]
    operands = contributions(shapes, replicas)
    made = dialect(in_this_process(devices_of(replicas)))
    shards, _ = run(operands, lambda b, values: made.reduce_scatter(b, values, layouts))
    for layout, terms, own in zip(layouts, operands, shards, strict=True):
        total = in_order(terms).reshape(-1)
        for replica, shard in enumerate(own):
            assert same(shard, total[slice(*layout.bounds(replica))])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("replicas", [2, 3, 8])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_all_gather_gives_every_replica_the_whole_tensors(
    dialect: Callable[[Replicas], Dialect], replicas: int, shapes: list[tuple[int, ...]]
) -> None:
    layouts = [flat_layout(shape, replicas, 4) for shape in shapes]
    tensors = [own[0] for own in contributions(shapes, 1)]
    shards = [
        [t.reshape(-1)[slice(*layout.bounds(r))] for r in range(replicas)]
        for t, layout in zip(tensors, layouts, strict=True)
    ]
    made = dialect(in_this_process(devices_of(replicas)))
    whole, _ = run(shards, lambda b, v: made.all_gather(b, v, layouts))
    for tensor, own in zip(tensors, whole, strict=True):
        assert len(own) == replicas
        assert all(same(gathered, tensor) for gathered in own)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_all_reduce_gives_every_replica_the_whole_sums(
    dialect: Callable[[Replicas], Dialect], shapes: list[tuple[int, ...]]
) -> None:
    operands = contributions(shapes, 4)
    made = dialect(in_this_process(devices_of(4)))
    sums, _ = run(operands, lambda b, v: made.all_reduce(b, v, shapes))
    for terms, own in zip(operands, sums, strict=True):
        assert len(own) == 4
        assert all(same(total, in_order(terms)) for total in own)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_all_reduce_gives_every_replica_the_largest_elements_and_no_nan_is_lost(
    dialect: Callable[[Replicas], Dialect],
) -> None:
    shapes = [(3, 5), (), (17,)]
    operands = contributions(shapes, 4)
    operands[2][1][3] = np.nan
    made = dialect(in_this_process(devices_of(4)))

    def verb(combine: Combine) -> Emit:
        return lambda b, v: made.all_reduce(b, v, shapes, combine)

    for combine, wanted in ((Combine.MAX, np.max), (Combine.MIN, np.min)):
        found, _ = run(operands, verb(combine))
        for terms, own in zip(operands, found, strict=True):
            assert len(own) == 4
            assert all(same(total, wanted(np.stack(terms), 0)) for total in own)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_slice_own_cuts_a_replicas_shard_out_of_a_whole_tensor(
    dialect: Callable[[Replicas], Dialect],
) -> None:
    tensor = np.arange(42, dtype=np.float32).reshape(6, 7)
    layout, made = flat_layout((6, 7), 3, 4), dialect(in_this_process(devices_of(3)))
    shards, nodes = run(
        [[tensor] * 3],
        lambda b, v: [[made.slice_own(b, v[0][r], layout, r) for r in range(3)]],
    )
    for replica, shard in enumerate(shards[0]):
        assert same(shard, tensor.reshape(-1)[slice(*layout.bounds(replica))])
    devices = devices_of(3)
    assert {n.device for n in nodes} == set(devices)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_dialect_of_one_process_emits_a_collective(
    dialect: Callable[[Replicas], Dialect],
) -> None:
    shapes: list[tuple[int, ...]] = [(40,), (3, 7)]
    layouts = [flat_layout(shape, 2, 4) for shape in shapes]
    made = dialect(in_this_process(devices_of(2)))

    def emit(at: Emitter, values: list[list[Value]]) -> list[list[Value]]:
        shards = made.reduce_scatter(at, values, layouts)
        return made.all_gather(at, shards, layouts)

    _, nodes = run(contributions(shapes, 2), emit)
    assert not [n.op for n in nodes if n.op.startswith("Collective")]


def test_an_empty_shard_is_never_joined() -> None:
    layout, made = Layout((16,), 4, 16), InProcess(in_this_process(devices_of(4)))
    values = [[Value(f"s{r}") for r in range(4)]]
    builder = GraphBuilder((), lambda value: FLOAT)
    made.all_gather(builder.at("", "whole"), values, [layout])
    assert [n.op for n in builder.nodes if n.op == "ConcatV2"] == []


def test_gathers_take_turns_between_the_devices_in_each_graph_anew() -> None:
    layout, made = flat_layout((64,), 2, 4), InProcess(in_this_process(devices_of(2)))
    first, second = devices_of(2)
    for _ in range(2):
        builder = GraphBuilder((), lambda value: FLOAT)
        for _ in range(3):
            made.all_gather(builder.at("", "whole"), [[Value("a"), Value("b")]], [layout])
        joined = [n.device for n in builder.nodes if n.op == "ConcatV2"]
        assert joined == [first, second, first]
