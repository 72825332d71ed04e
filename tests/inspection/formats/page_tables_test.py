"""Tables are cut with a word on it, sorted by size, and say "not known" of what nothing tells."""

from __future__ import annotations

import dataclasses

from tests.inspection.made_answers import answer
from tf_wu_shard import refusals
from tf_wu_shard.inspection.answers.answer import FunctionAnswer, MemoryRow, RefusedAnswer
from tf_wu_shard.inspection.formats import page_tables
from tf_wu_shard.report.report import Bytes, Report
from tf_wu_shard.report.share import left_alone
from tf_wu_shard.report.tables import Cell, Name, Table, cell_text


def function_of(count: int) -> tuple[FunctionAnswer, Report]:
    (function,) = answer("w", variables=count).functions
    assert function.report is not None
    return function, function.report


def texts(table: Table) -> list[list[str]]:
    return [[c.text if isinstance(c, Name) else cell_text(c) for c in row] for row in table.rows]


def test_a_long_table_is_cut_and_says_how_much() -> None:
    table = page_tables.variables(*function_of(9), 4)
    assert len(table.rows) == 4 and "The 4 largest of 9; --format json has all." in table.note
    assert "of 9" not in page_tables.variables(*function_of(9), 9).note


def test_the_largest_variable_comes_first_and_one_of_no_known_size_last() -> None:
    function, report = function_of(2)
    large = dataclasses.replace(function.updates[1], bytes=10**9)
    untold = RefusedAnswer("z", None, "", None, (), 0, slots_told=False, is_summed=False)
    why = refusals.Rules.NO_RULE.at("op", op_type="Odd")
    more = dataclasses.replace(report, left_alone=(*report.left_alone, left_alone("z", why)))
    changed = dataclasses.replace(function, updates=(function.updates[0], large), refused=(untold,))
    rows = texts(page_tables.variables(changed, more, 9))
    assert [row[0] for row in rows] == ["w1", "w0", "z"]
    assert rows[2][1:4] == ["not known"] * 3 and rows[2][-1] == "left alone"


def test_small_variables_share_a_row_for_each_limit() -> None:
    function, report = function_of(1)
    small = [
        left_alone(f"b{size}", refusals.Plan.TOO_SMALL.at(elements=size, limit=limit))
        for size, limit in ((10, 100), (20, 100), (500, 1000))
    ]
    table = page_tables.left_alone(
        function, dataclasses.replace(report, left_alone=tuple(small)), 9
    )
    rows = texts(table)
    assert [row[0] for row in rows] == ["2 variables, small", "1 variable, small"]
    assert rows[0][1].startswith("10 to 20 elements, below min_elements=100")


def test_what_is_left_alone_says_which_line_made_the_op() -> None:
    function, report = function_of(2)
    lined = dataclasses.replace(function, source_lines=(("w", "train.py, line 3"),))
    ((_, _, where, cure),) = texts(page_tables.left_alone(lined, report, 9))
    assert where == "w, made by train.py, line 3" and cure == "an update without w"


def test_memory_that_is_not_all_counted_is_at_most_saved() -> None:
    function, _ = function_of(1)
    row = MemoryRow(4, Bytes(100, 100), Bytes(300, 100))
    known = dataclasses.replace(function, memory=(row,))
    untold = RefusedAnswer("z", None, "", None, (), 0, slots_told=False, is_summed=False)
    partly = dataclasses.replace(known, refused=(untold,))
    assert texts(page_tables.memory(known))[0][-1] == "50%"
    assert texts(page_tables.memory(partly))[0][-1] == "at most 50%"
    nothing = dataclasses.replace(function, memory=(MemoryRow(4, Bytes(0, 0), Bytes(0, 0)),))
    assert texts(page_tables.memory(nothing))[0][-1] == "0%"


def test_functions_that_train_come_first() -> None:
    found = [FunctionAnswer(name, name == "train", "") for name in ("a", "train", "b")]
    assert [row[0] for row in texts(page_tables.functions(found, 9))] == ["train", "a", "b"]
    assert isinstance(page_tables.memory(function_of(1)[0]).rows[0][0], Cell)
