"""The oracle takes each sum whole on the first replica, packs nothing and shares nothing."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf  # noqa: F401  sets the package up

from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.reference.collectives import Reference
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.replicas import in_this_process

DEVICES = ("d0", "d1", "d2")

MADE = Reference(in_this_process(DEVICES))


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder((), lambda value: FLOAT32)


def named(builder: GraphBuilder, value: Value | str) -> Any:
    return next(node for node in builder.nodes if node.name == str(value))


def of(builder: GraphBuilder, op_type: str) -> list[Any]:
    return [node for node in builder.nodes if node.op == op_type]


def operands(tensors: int) -> list[list[Value]]:
    return [[Value(f"t{t}_{r}") for r in range(3)] for t in range(tensors)]


def test_every_tensor_is_summed_by_itself_in_order_and_cut_only_then(builder: GraphBuilder) -> None:
    layouts = [flat_layout((40,), 3, 4), flat_layout((5, 29), 3, 4)]
    shards = MADE.reduce_scatter(builder.at("", "sum"), operands(2), layouts)
    additions = of(builder, "AddV2")
    assert [[*node.input] for node in additions[::2]] == [["t0_0", "t0_1"], ["t1_0", "t1_1"]]
    assert [node.input[1] for node in additions[1::2]] == ["t0_2", "t1_2"]
    assert {node.device for node in additions} == {"d0"}
    assert not of(builder, "ConcatV2") and MADE.preferences.bucket_bytes == 1
    for own, total in zip(shards, additions[1::2], strict=True):
        cuts = [named(builder, shard) for shard in own]
        assert [cut.device for cut in cuts] == [*DEVICES]
        assert {named(builder, cut.input[0]).input[0] for cut in cuts} == {total.name}


def test_each_replica_puts_a_tensor_together_for_itself_of_what_is_not_empty(
    builder: GraphBuilder,
) -> None:
    shards = [[Value(f"s{r}") for r in range(3)]]
    ((*whole,),) = MADE.all_gather(builder.at("", "whole"), shards, [Layout((2, 16), 3, 16)])
    assert len(set(whole)) == 3
    assert [named(builder, own).device for own in whole] == [*DEVICES]
    joined = of(builder, "ConcatV2")
    assert [node.device for node in joined] == [*DEVICES]
    assert all([*node.input[:-1]] == ["s0", "s1"] for node in joined)


def test_the_largest_elements_are_found_once_and_shaped_on_each_device(
    builder: GraphBuilder,
) -> None:
    ((*found,),) = MADE.all_reduce(builder.at("", "max"), operands(1), [(3, 5)], Combine.MAX)
    (largest,) = of(builder, "Max")
    (parts,) = of(builder, "Pack")
    assert largest.device == "d0" and [*parts.input] == ["t0_0", "t0_1", "t0_2"]
    shaped = [named(builder, own) for own in found]
    assert [(own.op, own.input[0], own.device) for own in shaped] == [
        ("Reshape", largest.name, device) for device in DEVICES
    ]


def test_each_replica_gets_a_value_and_a_list_of_its_own(builder: GraphBuilder) -> None:
    received = MADE.broadcast_from(builder.at("d1", "told"), Value("w"))
    assert [(named(builder, v).op, named(builder, v).device) for v in received] == [
        ("Identity", device) for device in DEVICES
    ]
    lists = MADE.gather_entries(builder.at("", "lists"), {"rows": operands(1)[0]})
    made = [named(builder, v) for v in lists["rows"]]
    assert [node.device for node in made] == [*DEVICES]
    assert all([*node.input[:-1]] == ["t0_0", "t0_1", "t0_2"] for node in made)
