"""A collective that is put in has the group of the strategy's own, and a key that no other has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.tracing import bare_view
from tf_wu_shard.dtypes import FLOAT32, INT32, RESOURCE
from tf_wu_shard.graph.builder import GraphBuilder, graph_def_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.collective.group import Member, between_nodes, group_of, runs_by_nccl
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.tensorflow_private.call_time_inputs import CALL_TIME

DEVICES = ("/device:GPU:0", "/device:GPU:1")


class Step:
    """A graph in which each of two devices takes part in sums."""

    def __init__(self) -> None:
        self.builder = GraphBuilder(())
        at = self.builder.at("", "")
        self.size = at.constant(2)
        self.key = at.constant(7)
        self.counted = at.op("Placeholder", [], "counted", dtype=INT32, shape=())
        self.builder.nodes[-1].attr[CALL_TIME].list.s.append(b"counted")
        self.handed = at.op("Placeholder", [], "handed", dtype=INT32, shape=())

    def sum(self, name: str, instance: Value, key: Value | None = None) -> CarriedReduction:
        """A sum by one collective on each device, whose instance key comes by an input."""
        results = []
        for number, device in enumerate(DEVICES):
            at = self.builder.at(device, "")
            own = at.op("Placeholder", [], f"gradient{number}", dtype=FLOAT32, shape=())
            token = at.op("Placeholder", [], f"token{number}", dtype=RESOURCE, shape=())
            inputs = [own, self.size, key or self.key, instance, token]
            found = at.op(
                "CollectiveReduceV2",
                inputs,
                f"{name}{number}",
                merge_op=b"Add",
                final_op=b"Id",
                communication_hint=b"nccl",
                timeout_seconds=12.0,
                Nordering_token=1,
            )
            results.append(found)
        return reduction(results)

    @property
    def view(self) -> GraphView:
        return bare_view(graph_def_of(self.builder.nodes, tf.compat.v1.GraphDef()))


def reduction(results: Sequence[Value]) -> CarriedReduction:
    operands = (Value("gradient0"), Value("gradient1"))
    return CarriedReduction(operands, (*results,), 1, tuple(value.op for value in results))


def member(**changes: Any) -> Member:
    """One that takes part by numbers that are known."""
    attributes = {"communication_hint": b"ring", "timeout_seconds": 0.0, "is_stateless": False}
    made = Member("d0", 2, 7, "counted", (Value("token"),), attributes, False)
    return dataclasses.replace(made, **changes)


def test_the_group_is_what_the_first_sum_shows_whose_keys_are_counted_at_each_call() -> None:
    step = Step()
    inside_a_loop, counted = step.sum("loop", step.handed), step.sum("sum", step.counted)
    (first, second) = group_of(step.view, [inside_a_loop, counted])
    assert (first.device, second.device) == DEVICES
    assert (first.size, first.key, first.instance) == (step.size, step.key, "counted")
    assert [one.op for one in (*first.tokens, *second.tokens)] == ["token0_1", "token1_1"]
    assert first.attributes == {
        "communication_hint": b"nccl",
        "timeout_seconds": 12.0,
        "is_stateless": False,
    }
    assert first.by_nccl


def test_sums_that_no_collective_of_all_replicas_carries_show_no_group() -> None:
    step = Step()
    counted, handed = step.sum("sum", step.counted), step.sum("loop", step.handed)
    added = step.builder.at("", "").op("AddN", list(counted.operands), "added")
    of_one = dataclasses.replace(counted, carriers=counted.carriers[:1])
    assert group_of(step.view, [reduction([added]), of_one, handed]) == ()


def test_a_collective_runs_on_its_members_device_with_all_that_the_group_needs() -> None:
    builder = GraphBuilder((), {Value("x"): FLOAT32, Value("token"): RESOURCE}.__getitem__)
    found = member().collective(
        builder.at("elsewhere", "put"), "CollectiveReduceV2", Value("x"), "in",
        merge_op=b"Max", final_op=b"Id", Nordering_token=1,
    )  # fmt: skip
    nodes = {node.name: node for node in builder.nodes}
    node = nodes[found.op]
    assert (node.op, node.device) == ("CollectiveReduceV2", "d0")
    operand, size, key, instance, token = node.input
    assert (operand, token) == ("x", "token")
    assert [int(tf.make_ndarray(nodes[n].attr["value"].tensor)) for n in (size, key)] == [2, 7]
    assert {nodes[name].device for name in (size, key, instance)} == {"d0"}
    marks = nodes[instance].attr[CALL_TIME].list
    assert ([*marks.s], [*marks.i]) == ([b"counted"], [0])
    assert node.attr["merge_op"].s == b"Max" and node.attr["communication_hint"].s == b"ring"


def test_each_collective_of_a_device_has_the_next_number_whoever_takes_part() -> None:
    builder = GraphBuilder((), lambda value: FLOAT32)
    at, own = builder.at("", ""), member(tokens=())
    (of_place,) = between_nodes(bare_view(tf.compat.v1.GraphDef()), [own], 4)
    attributes = {"merge_op": b"Add", "final_op": b"Id"}
    own.collective(at, "CollectiveReduceV2", Value("x"), "one", **attributes)
    own.stand_aside(at, "aside")
    of_place.collective(at, "CollectiveReduceV2", Value("x"), "other", **attributes)
    keys = {node.name: node.attr[CALL_TIME].list.i[:] for node in builder.nodes}
    assert keys["one/instance_key"] == [0] and keys["aside/instance_key"] == [1]
    assert keys["other/instance_key"] == [2]
    assert [node.op for node in builder.nodes].count("CollectiveReduceV2") == 2


def test_the_replicas_of_a_place_have_a_key_of_their_own_where_that_of_all_is_known() -> None:
    step = Step()
    shown = step.sum("sum", step.counted)
    own = group_of(step.view, [shown])
    first, second = between_nodes(step.view, own, 3)
    assert (first.size, second.size) == (3, 3) and first.device == DEVICES[0]
    keys = {first.key, second.key}
    assert len(keys) == 2 and not keys & {*range(1000)}
    unknown = [dataclasses.replace(one, key=step.handed) for one in own]
    assert between_nodes(step.view, unknown, 3) == ()


@pytest.mark.parametrize(
    ("hint", "device", "by_nccl"),
    [(b"nccl", "/device:GPU:1", True), (b"nccl", "/CPU:0", False), (b"ring", "/GPU:0", False)],
)
def test_nccl_carries_out_what_hints_at_it_on_gpus(hint: bytes, device: str, by_nccl: bool) -> None:
    assert runs_by_nccl(hint, device) is by_nccl
