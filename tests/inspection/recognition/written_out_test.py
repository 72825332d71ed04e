"""What a variable is given in a branch is told from what leaves it as it was."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.inspection.recognition.written_out import is_constant, unless_skipped

GRAPH = """
taken = Placeholder() []
each = Placeholder() [4]
new = Placeholder() [4]
held = ReadVariableOp(w0) [4]
same = Identity(held) [4]
other = ReadVariableOp(m0) [4]
either = SelectV2(taken, new, same) [4]
twice = Select(taken, either, held) [4]
kept = SelectV2(taken, held, same) [4]
both = SelectV2(taken, new, other) [4]
lanes = SelectV2(each, new, held) [4]
skipped = SelectV2(taken, twice, kept) [4]
"""

VIEW = view_of(GRAPH, variables={"w": (4,), "m": (4,)})


@pytest.mark.parametrize("written", ["new", "either", "twice", "skipped"])
def test_what_is_given_is_found_behind_choices_that_keep_what_it_held(written: str) -> None:
    assert unless_skipped(VIEW, Value(written), "w") == Value("new")


@pytest.mark.parametrize("written", ["both", "lanes", "kept"])
def test_a_choice_of_two_values_or_for_each_element_is_none(written: str) -> None:
    assert unless_skipped(VIEW, Value(written), "w") == Value(written)


def test_what_another_variable_held_is_given() -> None:
    text = "p = Placeholder() []\no = ReadVariableOp(m0) [4]\nh = ReadVariableOp(w0) [4]\n"
    view = view_of(text + "s = SelectV2(p, o, h) [4]", variables={"w": (4,), "m": (4,)})
    assert unless_skipped(view, Value("s"), "w") == Value("o")
    assert unless_skipped(view, Value("s"), "m") == Value("h")


def test_a_constant_or_a_tensor_filled_with_one_begins_anew() -> None:
    view = view_of(
        """
        zero = Const() {value=0.0} []
        size = Const() {value=4} [1]
        zeros = Fill(size, zero) [4]
        x = Placeholder() []
        filled = Fill(size, x) [4]
        """
    )
    assert is_constant(view, Value("zero")) and is_constant(view, Value("zeros"))
    assert not is_constant(view, Value("filled")) and not is_constant(view, Value("x"))
