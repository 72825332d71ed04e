"""Claims about report/tables.py: what may be sorted says so, to every reader."""

from __future__ import annotations

from tf_wu_shard.report.page_script import FOLDED_ROWS
from tf_wu_shard.report.tables import Cell, Name, Table, render_table


def test_a_column_is_sorted_by_a_button_in_its_head() -> None:
    text = render_table(Table("t", ("a", "b"), (("x", "y"),), sortable=True))
    assert text.count('aria-sort="none"><button type="button">') == 2
    assert "button" not in render_table(Table("t", ("a",), (("x",),)))


def test_a_number_is_sorted_by_itself_not_by_its_text() -> None:
    text = render_table(Table("", ("a",), ((Cell("1.5 kB", 1536),), (Cell("?"),)), numbers=("a",)))
    assert 'data-key="1536"' in text and 'data-key="-1"' in text


def test_a_long_table_can_be_folded_and_holds_every_row() -> None:
    rows = tuple((str(i),) for i in range(FOLDED_ROWS + 1))
    text = render_table(Table("", ("a",), rows, sortable=True))
    assert 'class="more" type="button" hidden' in text and f"Show all {FOLDED_ROWS + 1}" in text
    assert text.count("<tr") == FOLDED_ROWS + 2
    assert "more" not in render_table(Table("", ("a",), rows[1:], sortable=True))


def test_a_row_stays_a_row_though_it_is_shown_as_a_card() -> None:
    text = render_table(Table("", ("a",), (("x",),)))
    assert all(f'role="{role}"' in text for role in ("table", "row", "columnheader", "cell"))


def test_a_name_may_break_after_a_slash_and_nowhere_is_it_markup() -> None:
    text = render_table(Table("", ("a",), ((Name("<b>/x"),),)))
    assert "&lt;b&gt;/<wbr>x" in text


def test_a_table_without_a_title_has_no_empty_heading() -> None:
    assert "<h3>" not in render_table(Table("", ("a",), (("x",),)))
