"""What NCCL carries out comes in one order on each device, one that the graph allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import tensorflow as tf

from tests.nccl.orders import orders_of
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.grounds.collective.nccl_order import in_one_order
from tf_wu_shard.tensorflow_private.call_time_inputs import CALL_TIME

DEVICES = ("/device:GPU:0", "/device:GPU:1")


def node(name: str, op: str, inputs: Iterable[str] = (), device: str = "") -> Any:
    return tf.compat.v1.NodeDef(name=name, op=op, device=device, input=inputs)


class Graph:
    """Two devices that do the same, by nodes whose names end with the device's number."""

    def __init__(self, devices: Sequence[str] = DEVICES) -> None:
        self.devices = devices
        self.nodes = [node(f"token{number}", "Placeholder") for number in range(len(devices))]

    def add(self, name: str, op: str = "Neg", *inputs: str, hint: bytes = b"") -> Graph:
        """An op on each device; a name stands for the op of the same device."""
        for number, device in enumerate(self.devices):
            self.nodes.append(node(f"{name}{number}", op, [f"{i}{number}" for i in inputs], device))
            if hint:
                self.nodes[-1].attr["communication_hint"].s = hint
                self.nodes[-1].attr["Nordering_token"].i = 1
        return self

    def sum(self, name: str, *inputs: str, hint: bytes = b"nccl") -> Graph:
        """A sum of the strategy's own."""
        self.add(f"{name}_key_", "Placeholder")
        return self.add(name, "CollectiveReduceV2", *inputs, f"{name}_key_", "token", hint=hint)

    def new(self, name: str, number: int, *inputs: str) -> Graph:
        """A collective that was put in, of a number."""
        self.add(f"{name}_key_", "Placeholder")
        for key in self.nodes[-len(self.devices) :]:
            key.attr[CALL_TIME].list.s.append(b"key")
            key.attr[CALL_TIME].list.i.append(number)
        return self.add(name, "CollectiveGatherV2", *inputs, f"{name}_key_", "token", hint=b"nccl")

    @property
    def order(self) -> list[str]:
        """The order on each device, which is the same on all."""
        orders = orders_of(in_one_order(self.nodes))
        assert set(orders) == set(self.devices)
        first, *others = ([name[:-1] for name in own] for own in orders.values())
        assert all(own == first for own in others)
        return first


def step() -> Graph:
    """A loss that is summed, a gradient in shards, a weight put together, and its norm summed."""
    graph = Graph().add("forward", "Const").add("backward", "Neg", "forward")
    graph.add("deeper", "Neg", "backward").sum("loss", "forward")
    graph.new("gradient", 0, "backward").add("update", "Neg", "gradient")
    graph.new("late_gradient", 1, "deeper").new("weight", 2, "update")
    return graph.add("length", "Neg", "weight").sum("norm", "length")


def test_new_collectives_and_those_of_the_strategy_are_in_one_order() -> None:
    assert step().order == ["loss", "gradient", "late_gradient", "weight", "norm"]


def test_the_nodes_stay_as_they_are() -> None:
    graph = step()
    before = [one.SerializeToString() for one in graph.nodes]
    after = in_one_order(graph.nodes)
    assert [one.SerializeToString() for one in graph.nodes] == before
    assert [one.name for one in after] == [one.name for one in graph.nodes]


def test_neither_names_nor_the_order_of_the_nodes_decide() -> None:
    graph = step()
    letters = "zyxwvutsrqponmlkjihgfedcba"
    renamed = {one.name: f"{letters[i % 26]}_{one.name}" for i, one in enumerate(graph.nodes)}
    for one in graph.nodes:
        inputs = [renamed[name] for name in one.input]
        one.name = renamed[one.name]
        del one.input[:]
        one.input.extend(inputs)
    graph.nodes.reverse()
    for own in orders_of(in_one_order(graph.nodes)).values():
        assert [name.partition("_")[2][:-1] for name in own] == step().order


def test_what_waits_on_one_device_waits_on_all() -> None:
    graph = step()
    # On the second device alone, the loss is a loss of the updated weight.
    loss = next(one for one in graph.nodes if one.name == "loss1")
    loss.input.append("^weight1")
    assert graph.order == ["gradient", "late_gradient", "weight", "loss", "norm"]


def test_a_branch_or_call_that_has_the_token_takes_its_turn() -> None:
    graph = step().add("branch", "If", "deeper", "token").sum("last", "branch")
    after = {one.name: set(one.input) for one in in_one_order(graph.nodes)}
    for number in "01":
        # It is as deep as the second gradient, and neither needs the other.
        assert f"^late_gradient{number}" not in after[f"branch{number}"]
        assert f"^branch{number}" in after[f"late_gradient{number}"]
    assert "last" in graph.order


def test_a_call_with_the_tokens_of_several_devices_stands_between_the_same_collectives() -> None:
    graph = step()
    graph.nodes.append(node("call", "StatefulPartitionedCall", ["token0", "token1", "^loss0"]))
    after = {one.name: set(one.input) for one in in_one_order(graph.nodes)}
    assert {"^loss0", "^loss1"} <= after["call"]
    assert all("^call" in after[f"gradient{number}"] for number in "01")


@pytest.mark.parametrize(("hint", "devices"), [(b"ring", DEVICES), (b"nccl", ("/device:CPU:0",))])
def test_what_others_carry_out_is_left_alone(hint: bytes, devices: Sequence[str]) -> None:
    graph = Graph(devices).add("value", "Const").sum("one", "value", hint=hint)
    graph.sum("other", "value", hint=hint)
    assert list(in_one_order(graph.nodes)) == graph.nodes


def test_devices_that_want_other_orders_are_an_error() -> None:
    graph = Graph().add("value", "Const").sum("one", "value").sum("other", "value")
    by_name = {one.name: one for one in graph.nodes}
    by_name["one0"].input.append("^other0")
    by_name["other1"].input.append("^one1")
    with pytest.raises(WuShardError, match="in different orders"):
        in_one_order(graph.nodes)
