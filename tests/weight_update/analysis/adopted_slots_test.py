"""A variable is adopted that is written, element by element, with whole values the update takes."""

from __future__ import annotations

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import REDUCED
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.weight_update.analysis.adopted_slots import (
    adopted_slots,
    written_beside,
)
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice

# Four elements, made of what is no gradient; the update divides by them.
WHOLE = """
rate# = Placeholder() [] @d#
old# = ReadVariableOp(c#) [4] @d#
second# = Mul(old#, rate#) [4] @d#
unit# = RealDiv(sum#, second#) [4] @d#
step# = AssignSubVariableOp(w#, unit#) @d#
"""
SHAPES = {"w": (4,), "s": (4,), "c": (4,), "r": ()}


def placed(text: str) -> tuple[GraphView, UpdateSlice]:
    """A graph, and the slice of the update of w in it."""
    view = view_of(REDUCED + text, variables=SHAPES)
    carried, _ = DIALECT.recognise(view)
    graph = ReducedGraph.of(view, gradient_reductions(view, carried), DIALECT.replicas)
    touching = {"w": [values_of(view, f"w{replica}") for replica in range(2)]}
    slice_ = UpdateSlice(graph, (0,), touching, ())
    assert slice_.place() is None
    return view, slice_


def adopted(text: str) -> set[str]:
    """What is adopted by the update of w."""
    return adopted_slots(*placed(text))


def test_what_is_written_with_the_value_itself_is_adopted() -> None:
    assert adopted(WHOLE + "put# = AssignVariableOp(s#, second#) @d#\n") == {"s"}


def test_what_is_written_with_something_made_of_it_element_by_element_is_adopted() -> None:
    text = "flat# = Reshape(second#, size) [4] @d#\nroot# = Sqrt(flat#) [4] @d#\n"
    assert adopted(WHOLE + text + "put# = AssignVariableOp(s#, root#) @d#\n") == {"s"}


def test_what_is_written_with_something_it_is_made_of_is_adopted() -> None:
    text = WHOLE.replace("unit# = RealDiv(sum#, second#)", "root# = Sqrt(second#) [4] @d#\n{}")
    text = text.format("unit# = RealDiv(sum#, root#)")
    assert adopted(text + "put# = AssignAddVariableOp(s#, second#) @d#\n") == {"s"}


def test_an_op_that_mixes_elements_ends_the_way_both_forward_and_back() -> None:
    mixed = "mixed# = Cumsum(second#, size) [4] @d#\nput# = AssignVariableOp(s#, mixed#) @d#\n"
    assert adopted(WHOLE + mixed) == set()
    text = WHOLE.replace("Mul(old#, rate#)", "Cumsum(old#, size)")
    assert adopted(text + "put# = AssignVariableOp(s#, old#) @d#\n") == set()


def test_a_number_or_a_shard_that_the_update_takes_adopts_nothing() -> None:
    text = WHOLE.replace("sum#, second#", "sum#, rate#")
    put = "put# = AssignVariableOp({}#, {}#) @d#\n"
    assert adopted(text + put.format("r", "rate")) == set()
    # The result of the update is there in shards; who else is written with it is no matter here.
    assert adopted(text + put.format("s", "unit")) == set()


def test_who_is_written_with_a_shard_of_the_update_is_told() -> None:
    put = "put# = AssignVariableOp(s#, {}#) @d#\n"
    assert written_beside(*placed(WHOLE)) == set()
    assert written_beside(*placed(WHOLE + put.format("unit"))) == {"s"}
    # So is who is written with what is made of that element by element.
    root = "root# = Sqrt(unit#) [4] @d#\n"
    assert written_beside(*placed(WHOLE + root + put.format("root"))) == {"s"}
    # What is there whole is none of it, nor what mixes elements.
    assert written_beside(*placed(WHOLE + put.format("second"))) == set()
    mixed = "mixed# = Cumsum(unit#, size) [4] @d#\n"
    assert written_beside(*placed(WHOLE + mixed + put.format("mixed"))) == set()
    # A write in which the value stands for what is written, and not one that writes it.
    assert written_beside(*placed(WHOLE + "odd# = OddOp(s#, unit#) @d#\n")) == set()
