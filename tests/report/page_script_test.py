"""A page's script is the one that its policy lets run, and it makes no markup of text."""

from __future__ import annotations

import base64
import hashlib

from tf_wu_shard.report.html import Page, Section, render
from tf_wu_shard.report.page_script import FOLDED_ROWS, SCRIPT, script_digest
from tf_wu_shard.report.tables import Table


def page(*, sortable: bool) -> str:
    table = Table(title="t", columns=("a", "b"), rows=(("1", "2"),), sortable=sortable)
    return render(Page("p", "", (Section("s", "", "", good=None, tables=(table,)),)))


def test_the_policy_names_the_script_that_stands_in_the_page() -> None:
    text = page(sortable=True)
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and script_digest() == f"sha256-{digest}"


def test_a_page_in_which_nothing_moves_has_no_script() -> None:
    text = page(sortable=False)
    assert "<script" not in text and "script-src" not in text


def test_no_text_becomes_markup() -> None:
    assert not any(word in SCRIPT for word in ("innerHTML", "outerHTML", "insertAdjacent", "eval("))
    assert "</" not in SCRIPT


def test_the_script_folds_where_the_table_says() -> None:
    assert f"FOLDED = {FOLDED_ROWS};" in SCRIPT
