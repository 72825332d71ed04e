"""NodeDefs made of others: the others stay, and control inputs come last and once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.nodes import (
    control_inputs,
    copy_of,
    data_inputs,
    edges_of,
    rename_ops,
    rewired,
    sources_of,
    waiting,
    with_inputs,
    with_operands,
    with_values,
    without_controls,
)
from tf_wu_shard.graph.op import Value


def node() -> Any:
    return tf.compat.v1.NodeDef(name="sum", op="AddV2", input=["a", "b:1", "^c"])


def test_edges_are_read_as_nodes_are() -> None:
    (edges,) = edges_of([node()])
    assert edges == ("sum", "AddV2", ["a", "b:1", "^c"])
    assert sources_of(edges) == sources_of(node()) == ["a", "b", "c"]


def inputs(made: Any) -> list[str]:
    return list(made.input)


def test_a_copy_may_be_changed_and_the_node_stays() -> None:
    old = node()
    new = copy_of(old)
    new.name, new.input[0] = "other", "x"
    assert (old.name, inputs(old)) == ("sum", ["a", "b:1", "^c"])


def test_an_op_is_named_whatever_is_taken_of_it() -> None:
    assert sources_of(node()) == ["a", "b", "c"]


def test_ops_are_renamed_wherever_they_are_named() -> None:
    made = [node(), tf.compat.v1.NodeDef(name="c"), tf.compat.v1.NodeDef(name="aa", input=["aa/b"])]
    rename_ops(made, {"a": "aa", "b": "x/b", "c": "d", "sum": "total"})
    assert [one.name for one in made] == ["total", "d", "aa"]
    assert [inputs(one) for one in made] == [["aa", "x/b:1", "^d"], [], ["aa/b"]]


def test_control_inputs_come_last_and_once() -> None:
    old = node()
    new = rewired(old, ["^d", "x", "^c", "b:1", "^d"])
    assert inputs(new) == ["x", "b:1", "^d", "^c"]
    assert inputs(old) == ["a", "b:1", "^c"]


def test_what_changes_nothing_gives_the_node_itself() -> None:
    old = node()
    assert rewired(old, ["a", "b:1", "^c"]) is old
    assert with_inputs(old, {"x": "y"}) is old
    assert with_values(old, {Value("b"): Value("y")}) is old
    assert with_operands(old, {}) is old
    assert waiting(old, []) is old


def test_inputs_values_and_operands_are_replaced() -> None:
    assert inputs(with_inputs(node(), {"a": "x:2", "^c": "^y"})) == ["x:2", "b:1", "^y"]
    assert inputs(with_values(node(), {Value("b", 1): Value("y")})) == ["a", "y", "^c"]
    assert inputs(with_operands(node(), {1: Value("y", 3)})) == ["a", "y:3", "^c"]


def test_a_node_waits_for_further_ops_too() -> None:
    assert inputs(waiting(node(), ["d", "c"])) == ["a", "b:1", "^c", "^d"]


def test_what_a_node_waits_for_is_told_apart_from_what_it_computes_with() -> None:
    one = node()
    assert data_inputs(one) == ["a", "b:1"]
    assert control_inputs(one) == ["^c"]
    assert list(without_controls(one).input) == ["a", "b:1"]
    assert list(one.input) == ["a", "b:1", "^c"]
