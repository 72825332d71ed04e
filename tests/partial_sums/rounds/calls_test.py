"""Which rounds the functions of a graph take part in, and which of its ops call such functions."""

from __future__ import annotations

import types
from collections.abc import Mapping

import pytest
import tensorflow as tf  # noqa: F401  sets the package up

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.partial_sums.rounds import calls
from tf_wu_shard.partial_sums.rounds.calls import calls_of_rounds, rounds_called_in

STEP = ("x", "round = EagerPyFunc(x) {token=one}", "round")
OTHER_STEP = ("x", "round = EagerPyFunc(x) {token=other}", "round")
PLAIN = ("x", "y = Square(x)", "y")
# Python code of the program's own.
LOGS = ("x", "y = EagerPyFunc(x) {token=logs}", "y")


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> list[types.SimpleNamespace]:
    """Two rounds of this process, the first with two traces."""
    found = [
        types.SimpleNamespace(name="first", tokens={"one", "again"}),
        types.SimpleNamespace(name="second", tokens={"other"}),
    ]
    monkeypatch.setattr(calls, "begun_rounds", lambda: found)
    return found


def graph(text: str, functions: Mapping[str, tuple[str, str, str]]) -> GraphView:
    return view_of(text, functions=functions)


def names_of(view: GraphView) -> list[str]:
    return [one.name for one in rounds_called_in(view)]


CALL = "call = StatefulPartitionedCall(x) {f=&step}\n"


def test_a_graph_without_functions_calls_no_rounds() -> None:
    view = graph("x = Placeholder()", {})
    assert names_of(view) == [] and calls_of_rounds(view) == []


def test_a_function_that_hands_in_takes_part_in_the_rounds_of_its_token() -> None:
    view = graph("x = Placeholder()\n" + CALL, {"step": STEP, "logs": LOGS})
    assert names_of(view) == ["first"]
    assert calls_of_rounds(view) == ["call"]


def test_another_function_takes_part_in_none() -> None:
    view = graph("x = Placeholder()\n" + CALL, {"step": LOGS, "plain": PLAIN})
    assert names_of(view) == [] and calls_of_rounds(view) == []


def test_a_step_of_its_own_is_no_call_of_one() -> None:
    view = graph("x = Placeholder()\nround = EagerPyFunc(x) {token=one}", {"plain": PLAIN})
    assert names_of(view) == [] and calls_of_rounds(view) == []


def test_several_rounds_come_in_the_order_in_which_they_were_begun() -> None:
    again = ("x", "round = EagerPyFunc(x) {token=again}", "round")
    view = graph("x = Placeholder()", {"b": OTHER_STEP, "a": again, "c": STEP})
    assert names_of(view) == ["first", "second"]


@pytest.mark.parametrize(
    "call",
    [
        "call = PartitionedCall(x) {f=&outer}",
        "call = If(x, x) {then_branch=&plain else_branch=&outer}",
        "call = While(x) {cond=&plain body=&outer}",
    ],
)
def test_a_call_leads_to_rounds_through_branches_loops_and_other_functions(call: str) -> None:
    outer = ("x", "inner = StatefulPartitionedCall(x) {f=&step}", "inner")
    text = f"x = Placeholder()\n{call}\nother = PartitionedCall(x) {{f=&plain}}"
    view = graph(text, {"outer": outer, "step": STEP, "plain": PLAIN})
    assert calls_of_rounds(view) == ["call"]


def test_functions_that_call_each_other_or_are_not_there_end_the_search() -> None:
    turn = ("x", "inner = StatefulPartitionedCall(x) {f=&step}", "inner")
    back = ("x", "inner = StatefulPartitionedCall(x) {f=&turn}", "inner")
    view = graph("x = Placeholder()\n" + CALL, {"step": back, "turn": turn})
    assert calls_of_rounds(view) == []
    assert calls_of_rounds(graph("x = Placeholder()\n" + CALL, {})) == []


def test_before_any_rounds_have_begun_nothing_calls_them(
    begun: list[types.SimpleNamespace],
) -> None:
    begun.clear()
    view = graph("x = Placeholder()\n" + CALL, {"step": STEP})
    assert names_of(view) == [] and calls_of_rounds(view) == []
