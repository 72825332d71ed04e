"""A worker's graph counts its writes from the first exchange to the last write."""

from __future__ import annotations

import types
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.grounds.collective.write_counts import Counted, with_write_counts

EXCHANGE = "CollectiveAllToAllV2"


def node(name: str, op: str, *inputs: str) -> Any:
    return tf.compat.v1.NodeDef(name=name, op=op, input=inputs)


def counter() -> Any:
    return types.SimpleNamespace(
        begun=types.SimpleNamespace(handle=object()), ended=types.SimpleNamespace(handle=object())
    )


def inputs_of(counted: Counted, name: str) -> set[str]:
    (found,) = (n for n in counted.nodes if n.name == name)
    return set(found.input)


@pytest.mark.parametrize(
    "exchange",
    [EXCHANGE, "CollectiveReduceScatterV2", "CollectiveReduceV2", "CollectiveGatherV2"],
)
def test_writes_begin_after_the_first_exchange_and_end_after_the_last_write(exchange: str) -> None:
    nodes = [
        node("m", "Placeholder"),
        node("x", "Placeholder"),
        node("g", exchange, "x"),
        node("first", "AssignVariableOp", "m", "g"),
        node("second", "AssignVariableOp", "m", "g", "^first"),
    ]
    own = counter()
    counted = with_write_counts(nodes, ("second",), {"first": [own], "second": [own]})
    begin, end = "wu_shard/writes_0/begin", "wu_shard/writes_0/end"
    assert "^g" in inputs_of(counted, begin)
    assert {"^first", "^second", f"^{begin}"} <= inputs_of(counted, end)
    assert f"^{begin}" in inputs_of(counted, "first") & inputs_of(counted, "second")
    assert counted.control_outputs == ("second", end)
    assert list(counted.bindings.values()) == [own.begun.handle, own.ended.handle]


def test_a_write_that_takes_nothing_of_an_exchange_begins_after_it_as_well() -> None:
    # Another worker may still read the slot on its way to the exchange.
    nodes = [
        node("m", "Placeholder"),
        node("x", "Placeholder"),
        node("decay", "AssignVariableOp", "m", "x"),
        node("g", EXCHANGE, "x"),
        node("write", "AssignVariableOp", "m", "g", "^decay"),
    ]
    own = counter()
    counted = with_write_counts(nodes, (), {"decay": [own], "write": [own]})
    begin = "wu_shard/writes_0/begin"
    assert "^g" in inputs_of(counted, begin)
    assert f"^{begin}" in inputs_of(counted, "decay") & inputs_of(counted, "write")


def test_an_exchange_that_waits_for_a_write_is_not_waited_for() -> None:
    nodes = [
        node("m", "Placeholder"),
        node("x", "Placeholder"),
        node("write", "AssignVariableOp", "m", "x"),
        node("g", EXCHANGE, "x", "^write"),
    ]
    counted = with_write_counts(nodes, (), {"write": [counter()]})
    assert "^g" not in inputs_of(counted, "wu_shard/writes_0/begin")


def test_writes_begin_after_all_lone_reads_and_later_ones_come_after_their_end() -> None:
    nodes = [
        node("m", "Placeholder"),
        node("one", "PyFunc"),
        node("other", "PyFunc"),
        node("first", "AssignVariableOp", "m", "one"),
        node("again", "PyFunc", "^first"),
        node("second", "AssignVariableOp", "m", "again", "other"),
        node("last", "PyFunc", "^second"),
    ]
    own = counter()
    lone = dict.fromkeys(("one", "other", "again", "last"), own)
    counted = with_write_counts(nodes, (), {"first": [own], "second": [own]}, lone)
    begins, ends = ([f"wu_shard/writes_{i}/{what}" for i in "01"] for what in ("begin", "end"))
    assert {"^one", "^other"} <= inputs_of(counted, begins[0])
    assert {"^again"} == {i for i in inputs_of(counted, begins[1]) if i[0] == "^"}
    assert not inputs_of(counted, "one") and not inputs_of(counted, "other")
    assert inputs_of(counted, "again") == {"^first", f"^{ends[0]}"}
    assert inputs_of(counted, "last") == {"^second", *(f"^{end}" for end in ends)}


def test_a_lone_read_of_a_slot_that_is_not_written_waits_for_nothing_more() -> None:
    nodes = [
        node("m", "Placeholder"),
        node("read", "PyFunc"),
        node("write", "AssignVariableOp", "m", "m"),
    ]
    counted = with_write_counts(nodes, (), {"write": [counter()]}, {"read": counter()})
    assert not inputs_of(counted, "read")
    assert "^read" not in inputs_of(counted, "wu_shard/writes_0/begin")


def test_each_of_several_updates_is_counted_by_itself() -> None:
    nodes = [
        node("m", "Placeholder"),
        node("x", "Placeholder"),
        node("g", EXCHANGE, "x"),
        node("again", "AssignVariableOp", "m", "h"),
        node("weights", EXCHANGE, "x", "^write"),
        node("h", EXCHANGE, "weights"),
        node("write", "AssignVariableOp", "m", "g"),
        node("later", "AssignVariableOp", "m", "g", "^write"),
    ]
    own = counter()
    written = {name: [own] for name in ("write", "later", "again")}
    counted = with_write_counts(nodes, (), written)
    found = {
        frozenset(inputs_of(counted, end)) & {"^write", "^later", "^again"}: begin
        for begin, end in ((f"wu_shard/writes_{i}/begin", f"wu_shard/writes_{i}/end") for i in "01")
    }
    assert set(found) == {frozenset(("^write", "^later")), frozenset(("^again",))}
    assert "^g" in inputs_of(counted, found[frozenset(("^write", "^later"))])
    assert "^h" in inputs_of(counted, found[frozenset(("^again",))])


def test_slots_of_two_models_are_counted_apart() -> None:
    names = ("a", "b", "both")
    nodes = [node("m", "Placeholder"), node("x", "Placeholder")]
    nodes += [node(name, "AssignVariableOp", "m", "x") for name in names]
    one, other = counter(), counter()
    counted = with_write_counts(nodes, (), {"a": [one], "b": [other], "both": [one, other]})
    ends = [n for n in counted.nodes if n.name.endswith("/end")]
    writes = [{text for text in end.input if text in ("^a", "^b", "^both")} for end in ends]
    assert sorted(map(sorted, writes)) == [["^a", "^both"], ["^b", "^both"]]
    assert len(counted.bindings) == 4


def test_a_graph_that_writes_nothing_stays_as_it_is() -> None:
    nodes = [node("x", "Placeholder")]
    counted = with_write_counts(nodes, ("x",), {})
    assert counted == Counted((*nodes,), ("x",), {})
