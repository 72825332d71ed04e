"""Slots that a function writes, perhaps within one count, are read by all its workers together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.weight_update.slot_reads import keys_written_in, read_together

SHAPES = {"a": (4,), "b": (4,)}


def slot(write_counts: object) -> Any:
    """A slot whose writes are counted so."""
    return SimpleNamespace(write_counts=write_counts)


def test_what_shares_a_count_with_what_is_written_is_read_together() -> None:
    # Counts that are equal and not the same are two.
    own, other = [0], [0]
    slots = {"first": slot(own), "second": slot(own), "apart": slot(other)}
    assert read_together(slots, [slots["first"]]) == {"first", "second"}
    assert read_together(slots, [slot(other)]) == {"apart"}


def test_where_nothing_is_written_each_slot_is_read_alone() -> None:
    assert read_together({"a": slot([])}, []) == set()


def test_a_graph_writes_what_it_assigns_and_not_what_it_reads() -> None:
    text = "read# = ReadVariableOp(a#) [4]\nput# = AssignAddVariableOp(b#, read#)\n"
    view = view_of(text, variables=SHAPES, outputs=("read0",))
    assert keys_written_in(view, view.variables) == {"b"}


def test_only_the_handles_that_are_asked_about_count() -> None:
    view = view_of("x = Placeholder() [4]\nput# = AssignVariableOp(b#, x)\n", variables=SHAPES)
    assert keys_written_in(view, {"a0": view.variables["a0"]}) == set()
    # By the key that the handle goes by here.
    other = VariableRef("other", 0, 1, (4,), tf.float32.as_datatype_enum, True, "")
    assert keys_written_in(view, {"b0": other}) == {"other"}


def test_what_may_write_counts_as_a_write_and_a_call_that_only_reads_does_not() -> None:
    text = """
    odd = OddOp(a0) [4]
    both = StatefulPartitionedCall(a1, b0) {f=&f} [4]
    kept = Print(both) []
    """
    functions = {"f": ("x y", "put = AssignVariableOp(y, y)\nr = ReadVariableOp(x)", "r:value:0")}
    view = view_of(text, variables=SHAPES, functions=functions, outputs=("odd",))
    assert keys_written_in(view, {"a0": view.variables["a0"]}) == {"a"}
    assert keys_written_in(view, {"a1": view.variables["a1"]}) == set()
    assert keys_written_in(view, {"b0": view.variables["b0"]}) == {"b"}
