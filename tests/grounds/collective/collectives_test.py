"""Verbs made of collectives do what the verbs say; those of NCCL are run by what stands for it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.grounds.dialect_test import contributions, devices_of, in_order, run, same
from tests.nccl.lowering import runnable
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.collective import collectives
from tf_wu_shard.grounds.collective.collectives import Collectives
from tf_wu_shard.grounds.collective.group import Member
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.layout.rows import row_layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.tensorflow_private.function_graph import op_def

pytestmark = pytest.mark.usefixtures("logical_cpus")

SHAPES = [[(5, 29)], [(48,)], [(40,), (), (3, 7)], [(1,), (16,), (2, 40)]]

# Additions in another order differ by a few roundings of sums of this size, about 1.
OTHER_ORDER = 1e-6

# No two groups of a process may have one key.
_keys = itertools.count(7000)

Emit = Callable[[Collectives, Emitter, list[list[Value]]], list[list[Value]]]


def group_of(
    at: Emitter, replicas: int, devices: Sequence[str] = (), by_nccl: bool = False
) -> tuple[Member, ...]:
    """A new group, of the first logical devices unless others are named."""
    key = next(_keys)
    return tuple(
        Member(
            device,
            at.on(device).constant(replicas),
            at.on(device).constant(key),
            "",
            (),
            {"communication_hint": b"auto", "timeout_seconds": 30.0, "is_stateless": False},
            by_nccl,
        )
        for device in devices or devices_of(replicas)
    )


def emitted(
    operands: list[list[np.ndarray]], emit: Emit, by_nccl: bool = False
) -> tuple[list[list[np.ndarray]], list[Any]]:
    """What a verb makes of operands, and its nodes."""
    made = Collectives(in_this_process(devices_of(len(operands[0]))))

    def of_group(at: Emitter, values: list[list[Value]]) -> list[list[Value]]:
        made._group = group_of(at, len(operands[0]), by_nccl=by_nccl)
        return emit(made, at, values)

    return run(operands, of_group, runnable)


def sums_of(layouts: list[Layout]) -> Emit:
    return lambda made, at, values: made.reduce_scatter(at, values, layouts)


@pytest.mark.parametrize("by_nccl", [False, True])
@pytest.mark.parametrize("replicas", [2, 3, 8])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_reduce_scatter_gives_each_replica_its_shard_of_the_sums(
    shapes: list[tuple[int, ...]], replicas: int, by_nccl: bool
) -> None:
    layouts = [flat_layout(shape, replicas, 4) for shape in shapes]
    operands = contributions(shapes, replicas)
    shards, nodes = emitted(operands, sums_of(layouts), by_nccl)
    for layout, terms, own in zip(layouts, operands, shards, strict=True):
        total = in_order(terms).reshape(-1)
        for replica, shard in enumerate(own):
            wanted = total[slice(*layout.bounds(replica))]
            assert shard.shape == wanted.shape
            assert by_nccl or same(shard, wanted)
            np.testing.assert_allclose(shard, wanted, rtol=0, atol=OTHER_ORDER)
    by = "CollectiveReduceScatterV2" if by_nccl else "CollectiveAllToAllV2"
    assert [n.op for n in nodes if n.op.startswith("Collective")] == [by] * replicas


def test_rows_of_a_table_are_summed_as_rows() -> None:
    layout = row_layout((37, 8), 4, 4)
    operands = contributions([(37, 8)], 4)
    ((shards), _) = emitted(operands, sums_of([layout]))
    for replica, shard in enumerate(shards[0]):
        assert same(shard, in_order(operands[0])[slice(*layout.rows(replica))])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.bool_])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_all_gather_gives_every_replica_the_whole_tensors_of_any_type(
    shapes: list[tuple[int, ...]], dtype: Any
) -> None:
    layouts = [flat_layout(shape, 4, np.dtype(dtype).itemsize) for shape in shapes]
    tensors = [(10.0 * own[0]).astype(dtype) for own in contributions(shapes, 1)]
    shards = [
        [t.reshape(-1)[slice(*layout.bounds(r))] for r in range(4)]
        for t, layout in zip(tensors, layouts, strict=True)
    ]
    whole, _ = emitted(shards, lambda made, at, values: made.all_gather(at, values, layouts))
    for tensor, own in zip(tensors, whole, strict=True):
        assert len(own) == 4 and all(same(gathered, tensor) for gathered in own)


def test_bits_of_types_that_no_collective_carries_arrive() -> None:
    tensor = np.array([1.5, -2.0, np.nan, np.inf] * 20, tf.bfloat16.as_numpy_dtype)
    layout = flat_layout((80,), 2, 2)
    shards = [[tensor[slice(*layout.bounds(r))] for r in range(2)]]
    whole, nodes = emitted(shards, lambda made, at, values: made.all_gather(at, values, [layout]))
    assert all(same(own, tensor) for own in whole[0])
    carried = {n.attr["T"].type for n in nodes if n.op == "CollectiveGatherV2"}
    assert carried == {tf.float16.as_datatype_enum}


@pytest.mark.parametrize("by_nccl", [False, True])
@pytest.mark.parametrize("shapes", [[(3, 5), (), (17,)], [(64, 700)]], ids=str)
def test_all_reduce_gives_every_replica_the_whole_sums(
    shapes: list[tuple[int, ...]], by_nccl: bool
) -> None:
    operands = contributions(shapes, 4)
    sums, _ = emitted(
        operands, lambda made, at, values: made.all_reduce(at, values, shapes), by_nccl
    )
    for terms, own in zip(operands, sums, strict=True):
        assert len(own) == 4
        for total in own:
            assert by_nccl or same(total, in_order(terms))
            np.testing.assert_allclose(total, in_order(terms), rtol=0, atol=OTHER_ORDER)


@pytest.mark.parametrize("combine", [Combine.MAX, Combine.MIN])
def test_all_reduce_takes_the_largest_or_smallest_elements(combine: Combine) -> None:
    operands = contributions([(3, 5)], 4)
    found, _ = emitted(
        operands, lambda made, at, values: made.all_reduce(at, values, [(3, 5)], combine)
    )
    wanted = (np.max if combine is Combine.MAX else np.min)(np.stack(operands[0]), 0)
    assert all(same(own, wanted) for own in found[0])


@pytest.mark.parametrize("tokens", [0, 1])
def test_what_nccl_carries_is_what_tensorflows_ops_take(tokens: int) -> None:
    """As collective_ops.cc and its kernels say of inputs, attributes and sizes."""
    replicas, shapes = 3, [(5, 29), (40,)]
    layouts = [flat_layout(shape, replicas, 4) for shape in shapes]
    builder = GraphBuilder((), lambda value: tf.float32.as_datatype_enum)
    made = Collectives(in_this_process(devices_of(replicas)))
    made._group = tuple(
        dataclasses.replace(
            member,
            attributes=member.attributes | {"communication_hint": b"nccl"},
            tokens=(Value(f"token_{place}"),) * tokens,
        )
        for place, member in enumerate(group_of(builder.at("", ""), replicas, by_nccl=True))
    )
    at = builder.at("", "verb")
    own = [[Value(f"in_{t}_{r}") for r in range(replicas)] for t in range(len(shapes))]
    shards = made.reduce_scatter(at, own, layouts)
    made.all_gather(at, shards, layouts)
    made.all_reduce(at, own, shapes, Combine.MAX)
    emitted = [node for node in builder.nodes if node.op.startswith("Collective")]
    by_type = {node.op for node in emitted}
    assert by_type == {"CollectiveReduceScatterV2", "CollectiveGatherV2", "CollectiveReduceV2"}
    for node in emitted:
        op = op_def(node.op)
        assert op is not None
        *fixed, last = [argument.name for argument in op.input_arg]
        assert fixed == ["input", "group_size", "group_key", "instance_key"]
        assert last == "ordering_token" and node.attr["Nordering_token"].i == tokens
        given = [name for name in node.input if not name.startswith("^")]
        assert len(given) == len(fixed) + tokens
        required = {a.name for a in op.attr if not a.HasField("default_value")}
        assert required <= set(node.attr) <= {a.name for a in op.attr}
        assert node.attr["communication_hint"].s == b"nccl"
        # What reads and writes no variable is kept in order by its token.
        assert not node.attr["is_stateless"].b
        for attribute in op.attr:
            allowed = set(attribute.allowed_values.list.s)
            assert not allowed or node.attr[attribute.name].s in allowed
            types = set(attribute.allowed_values.list.type)
            assert not types or node.attr[attribute.name].type in types
    # Member r has elements [rL/N, (r+1)L/N), so L is to be a multiple of N.
    assert all(layout.shard_size * replicas == layout.size + layout.padding for layout in layouts)


def test_a_large_exchange_goes_in_pieces_of_the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "_PIECE", 50)
    layouts = [flat_layout((5, 29), 2, 4)]
    operands = contributions([(5, 29)], 2)
    ((shards,), nodes) = emitted(operands, sums_of(layouts))
    total = in_order(operands[0]).reshape(-1)
    for replica, shard in enumerate(shards):
        assert same(shard, total[slice(*layouts[0].bounds(replica))])
    # Of two rows of 80 elements, padding included: 50 elements are 25 of each row.
    assert sum(n.op == "CollectiveAllToAllV2" for n in nodes) == 2 * 4


@pytest.mark.parametrize("by_nccl", [False, True])
def test_gradients_may_travel_in_bfloat16_and_are_summed_in_float32(by_nccl: bool) -> None:
    layouts = [flat_layout((5, 29), 4, 4)]
    operands = contributions([(5, 29)], 4)

    def narrow(made: Collectives, at: Emitter, values: list[list[Value]]) -> list[list[Value]]:
        made.wire_dtype = tf.bfloat16.as_datatype_enum
        return made.reduce_scatter(at, values, layouts)

    ((shards,), nodes) = emitted(operands, narrow, by_nccl)
    rounded = [own.astype(tf.bfloat16.as_numpy_dtype).astype(np.float32) for own in operands[0]]
    total = in_order(rounded).reshape(-1)
    for replica, shard in enumerate(shards):
        assert same(shard, total[slice(*layouts[0].bounds(replica))])
    carried = {n.attr["T"].type for n in nodes if n.op == "CollectiveAllToAllV2"}
    assert carried == {tf.bfloat16.as_datatype_enum}
    # What the documentation says of a rounded gradient.
    for own, other in zip(operands[0], rounded, strict=True):
        assert np.all(np.abs(own - other) <= np.abs(own) / 256)


def test_an_element_of_16_bytes_travels_as_two_numbers() -> None:
    tensor = np.linspace(0, 1, 40) * (1 - 2j)
    layout = flat_layout((40,), 2, 16)
    shards = [[tensor[slice(*layout.bounds(r))] for r in range(2)]]
    whole, _ = emitted(shards, lambda made, at, values: made.all_gather(at, values, [layout]))
    assert all(same(own, tensor) for own in whole[0])
