"""Sums over replicas are recognised by type, device and group, never by name."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.in_process.recognise import recognise_in_process
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.step.capture import capture

COLLECTIVE = """
size = Const() {value=2}
key = Const() {value=1}
g# = Mul() [4] @d#
sum# = CollectiveReduceV2(g#, size, key) {merge_op=Add final_op=Id} [4] @d#
"""
ADD_N = """
g# = Mul() [4] @d#
total = AddN(g0, g1) [4] @d0
out# = Identity(total) [4] @d#
"""
DEVICES = ("d0", "d1")


def recognised(
    text: str, outputs: tuple[str, ...] = (), devices: tuple[str, ...] = DEVICES
) -> tuple[list[CarriedReduction], list[str]]:
    view = view_of(text, outputs=outputs)
    found, refusals = recognise_in_process(view, in_this_process(devices))
    return found, [str(r) for r in refusals]


def test_one_collective_a_replica_is_one_sum() -> None:
    found, refusals = recognised(COLLECTIVE)
    assert refusals == []
    assert [(list(map(str, r.operands)), r.carriers, r.divisor) for r in found] == [
        (["g0", "g1"], ("sum0", "sum1"), 1)
    ]


def test_the_collectives_of_a_device_are_paired_in_order() -> None:
    second = COLLECTIVE.replace("g#", "h#").replace("sum#", "sum_1_#").split("\n", 3)[3]
    found, _ = recognised(COLLECTIVE + second)
    assert [r.carriers for r in found] == [("sum0", "sum1"), ("sum_1_0", "sum_1_1")]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("merge_op=Add", "merge_op=Max", "it reduces by Max and Id, not to a sum"),
        ("final_op=Id", "final_op=Sqrt", "it reduces by Add and Sqrt, not to a sum"),
        ("value=2", "value=3", "its group has 3 members, the step 2 replicas"),
    ],
)
def test_a_reduction_that_is_no_sum_of_all_replicas_is_refused(
    old: str, new: str, reason: str
) -> None:
    text = COLLECTIVE.replace(old, new)
    found, refusals = recognised(text)
    assert found == []
    assert refusals
    assert all(r.startswith(reason) for r in refusals)


def test_a_collective_that_one_replica_lacks_is_refused() -> None:
    lines = COLLECTIVE.strip().splitlines()
    text = "\n".join([*lines[:3], lines[3].replace("#", "0")])
    found, refusals = recognised(text)
    assert found == []
    assert refusals == ["not every replica takes part in this sum in this graph (sum0)"]


def test_replicas_that_reduce_in_different_ways_are_refused() -> None:
    lines = COLLECTIVE.strip().splitlines()
    mixed = [line.replace("#", "0") for line in lines[2:]]
    mixed += [line.replace("#", "1").replace("=Id", "=Div") for line in lines[2:]]
    found, refusals = recognised("\n".join(lines[:2] + mixed))
    assert found == []
    assert refusals == [
        "some replicas add up what others average, or sum another element type (sum0)"
    ]


def test_without_devices_a_collective_is_refused_once() -> None:
    found, refusals = recognised(COLLECTIVE, devices=())
    assert found == []
    assert refusals == ["no mirrored variable of the step tells which replica runs it (sum0)"]


def test_an_addn_over_the_replicas_handed_back_to_each_is_a_sum() -> None:
    found, refusals = recognised(ADD_N, ("out0", "out1"))
    assert refusals == []
    assert [(r.carriers, list(map(str, r.results)), r.divisor) for r in found] == [
        (("total",), ["out0", "out1"], 1)
    ]


MEAN = """
g# = Mul() [4] @d#
total = AddN(g0, g1) [4] @d0
by = Const() {{value={}}} @d0
mean = RealDiv(total, by) [4] @d0
out# = Identity(mean) [4] @d#
"""


def test_an_addn_divided_by_the_number_of_replicas_is_a_mean() -> None:
    found, refusals = recognised(MEAN.format("2.0"), ("out0", "out1"))
    assert refusals == []
    assert [(r.carriers, list(map(str, r.results)), r.divisor) for r in found] == [
        (("total", "mean"), ["out0", "out1"], 2)
    ]
    # Divided by anything else it is a sum on one device that nobody gets back.
    assert recognised(MEAN.format("3.0"), ("out0", "out1")) == ([], [])


@pytest.mark.parametrize(
    "text",
    [
        # Its operands come from one replica.
        ADD_N.replace("AddN(g0, g1)", "AddN(g0, g0)"),
        # Not every replica gets it back.
        ADD_N.replace(
            "out# = Identity(total) [4] @d#", "out0 = Identity(total) @d0\nout1 = Neg(g1)"
        ),
        # Something else reads the sum.
        ADD_N + "also = Neg(total)\nlast = Print(also)\n",
    ],
    ids=["one replica", "not handed back", "also read"],
)
def test_another_addn_is_no_sum_over_replicas(text: str) -> None:
    assert recognised(text, ("out0", "out1")) == ([], [])


def test_the_terms_of_an_addn_are_told_apart_by_their_device_not_their_place() -> None:
    found, _ = recognised(ADD_N.replace("AddN(g0, g1)", "AddN(g1, g0)"), ("out0", "out1"))
    assert [list(map(str, r.operands)) for r in found] == [["g0", "g1"]]


def test_a_dead_reduction_is_not_found() -> None:
    assert recognised(ADD_N) == ([], [])


def test_a_branch_that_joins_what_it_is_handed_gathers_nothing() -> None:
    def branches(taken: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> Any:
        with tf.device("/device:CPU:0"):
            return tf.cond(
                taken,
                lambda: (a + tf.random.normal([2, 3]), b, 1.0),
                lambda: (tf.concat([a, b], 0), b, 2.0),
            )

    part = tf.TensorSpec([2, 3])
    traced = tf.function(branches).get_concrete_function(tf.TensorSpec([], tf.bool), part, part)
    view = capture(traced.graph).view
    (device,) = {op.device for op in view if op.type == "If"}
    assert recognise_in_process(view, in_this_process((device, "another"))) == ([], [])
