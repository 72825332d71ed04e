"""Claims about report/html.py: one file, nothing loaded, nothing unescaped, nothing left out."""

import base64
import hashlib
import html.parser
import re

from tf_wu_shard.report.charts import Bar, BarChart, LineChart, Series
from tf_wu_shard.report.flow_chart import FlowChart, FlowEdge, FlowRow, Flows
from tf_wu_shard.report.html import Listing, Page, Section, Tile, render
from tf_wu_shard.report.tables import Cell, Name, Table

_EVIL = '</style><script>alert("&")</script>'

_VOID = {"meta", "line", "polyline", "path", "wbr"}


class _Balance(html.parser.HTMLParser):
    """Fails on a tag that is closed in the wrong place, and gathers all text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _flow(text: str) -> FlowChart:
    rows = (FlowRow("value", text, text, text, text), FlowRow("step", text, lane=1))
    return FlowChart(text, rows, (FlowEdge(0, 1),))


def _page(text: str, *, good: bool = True) -> str:
    return render(
        Page(
            text,
            text,
            (
                Section(
                    text,
                    text,
                    text,
                    good=good,
                    tiles=(Tile(text, text, text),),
                    lines=(LineChart(text, text, (Series(text, "sharded", (2.0, 1.0)),)),),
                    bars=(BarChart(text, (Bar(text, "baseline", 1.0, text),)),),
                    flows=(Flows(text, text, (_flow(text),)),),
                    tables=(
                        Table(text, (text,), ((text,), (Name(text),), (Cell(text, 1),)), note=text),
                        Table(text, (text,), (), empty="nothing at all"),
                    ),
                    listings=(Listing(text, text, (f"+{text}", f"-{text}", text)),),
                ),
            ),
        )
    )


def _read(page: str) -> _Balance:
    balance = _Balance()
    balance.feed(page)
    balance.close()
    return balance


def test_tags_are_balanced() -> None:
    assert _read(_page("words")).open == []


def test_no_text_becomes_markup() -> None:
    read = _read(_page(_EVIL))
    assert "script" not in read.tags
    # Title, heading, section's three, tile's three, two chart titles and what they hold, the flow,
    # tables, the listing's title, text and lines.
    assert "".join(read.text).count('alert("&")') >= 30


def test_a_reader_who_may_sort_gets_the_pages_own_script_and_no_other_may_run() -> None:
    table = Table("", ("a",), (("b",),), sortable=True)
    page = render(Page("", "", (Section("", "", "", None, tables=(table,)),)))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert "<script" not in _page("words") and "script-src" not in _page("words")


def test_nothing_is_loaded_from_anywhere() -> None:
    page = _page("words")
    assert not re.search(r"(\bsrc=|href|url|@import|https?:|//\w)", page)


def test_lines_of_a_diff_are_marked_up() -> None:
    page = _page("words")
    assert "<pre><ins>+words</ins>\n<del>-words</del>\nwords</pre>" in page
    assert "<pre" not in render(Page("", "", (Section("", "", "", None),)))


def test_an_empty_table_says_what_it_means() -> None:
    read = _read(_page("words"))
    assert "nothing at all" in "".join(read.text)


def test_a_bad_verdict_looks_different() -> None:
    assert 'class="verdict bad"' in _page("words", good=False)
    assert 'class="verdict bad"' not in _page("words", good=True)


def test_the_page_follows_the_readers_colour_scheme_and_width() -> None:
    page = _page("words")
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page
