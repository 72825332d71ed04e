"""A report names the user's line behind the op that holds most back, where the trace tells it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.report.published import nothing_to_shard
from tf_wu_shard.report.report import Report
from tf_wu_shard.report.share import HeldBack
from tf_wu_shard.weight_update.report_lines import with_line


def made_here() -> tf.Tensor:
    return tf.square(tf.constant(2.0), name="mine")


@pytest.fixture(scope="module")
def graph() -> Any:
    return tf.function(made_here, autograph=False).get_concrete_function().graph


def report(where: str | None) -> Report:
    """A report of what is held back at an op; None where nothing is."""
    held = None if where is None else HeldBack(1, 4, "w", "no rule for Square", where, "")
    return dataclasses.replace(nothing_to_shard("step"), held_back=held)


def line_of(found: Report) -> str:
    assert found.held_back is not None
    return found.held_back.line


def test_the_line_that_made_the_op_is_named_and_nothing_else_changes(graph: Any) -> None:
    before = report("mine")
    found = with_line(before, graph)
    number = made_here.__code__.co_firstlineno + 1
    assert line_of(found) == f"report_lines_test.py:{number} in made_here"
    assert before.held_back is not None
    held = dataclasses.replace(before.held_back, line=line_of(found))
    assert found == dataclasses.replace(before, held_back=held)


def test_of_an_op_that_was_written_out_it_is_the_line_of_what_had_it(graph: Any) -> None:
    assert line_of(with_line(report("mine/then/Square"), graph)) == line_of(
        with_line(report("mine"), graph)
    )


def test_an_op_that_the_trace_does_not_have_has_no_line(graph: Any) -> None:
    assert line_of(with_line(report("other"), graph)) == ""


@pytest.mark.parametrize("where", [None, ""])
def test_where_no_op_is_named_the_trace_is_not_asked(where: str | None) -> None:
    before = report(where)
    assert with_line(before, None) is before
