"""The page in a real browser: it complains of nothing, fits, sorts, and can be read by all.

It needs a Chromium, which the continuous integration installs where it can.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

from tests.inspection.made_answers import HOSTILE, answer
from tests.model_files.exported import exported
from tests.report import browser
from tests.report.browser import Browser
from tf_wu_shard.inspection.answers.answer import Inspection
from tf_wu_shard.inspection.formats.page import as_html
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model

WIDTHS = (1280, 400)

# What sticks out of the window to the right; what scrolls or is cut inside of something does not.
OVERFLOWING = """
[...document.body.querySelectorAll("*")]
  .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 0.5)
  .map((e) => e.outerHTML.slice(0, 120))
"""

# WCAG 2.2, 1.4.3: text has at least 4.5 times the luminance of what is behind it, or the other way
# round; relative luminance as defined there.
FAINT = """
(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const e of document.querySelectorAll("body, body *")) {
    const said = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!said || e.tagName === "SCRIPT") continue;
    const both = [luminance(parse(getComputedStyle(e).color)), luminance(behind(e))];
    const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)}: ${e.outerHTML.slice(0, 120)}`);
  }
  return faint;
})()
"""

# The table of variables is the one that has sizes.
TABLE = "[...document.querySelectorAll('table.sortable.compact')][0]"
HEAD = f"[...{TABLE}.tHead.rows[0].cells]"
SHOWN = f"[...{TABLE}.tBodies[0].rows].filter((r) => r.checkVisibility())"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    yield from browser.running()


def inspected(optimizer: str | None) -> Inspection:
    return inspect(read_model(exported(optimizer)), Question(replicas=4))


def written(inspection: Inspection, folder: pathlib.Path) -> pathlib.Path:
    file = folder / "page.html"
    file.write_text(as_html(inspection), encoding="utf-8")
    return file


PAGES = {
    "a model that trains": lambda: inspected("adam"),
    "a model that does not": lambda: inspected(None),
    "hostile names": lambda: answer(HOSTILE, variables=30),
    "long names": lambda: answer("a_name_without_end" * 100, variables=3),
    "names from right to left": lambda: answer("\u05e9\u05dc\u05d5\u05dd/\u0645", variables=3),
    "many variables": lambda: answer("layer/kernel", variables=5000),
}


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_fits_and_can_be_read(chromium: Browser, kind: str, tmp_path: pathlib.Path) -> None:
    file = written(PAGES[kind](), tmp_path)
    for width in WIDTHS:
        for dark in (False, True):
            chromium.open(file, width, dark=dark)
            assert chromium.complaints == []
            assert chromium.evaluate("document.documentElement.scrollWidth") == width
            assert chromium.evaluate(OVERFLOWING) == []
            assert chromium.evaluate(FAINT) == []


def test_dark_is_darker(chromium: Browser, tmp_path: pathlib.Path) -> None:
    file = written(inspected("adam"), tmp_path)
    papers = []
    for dark in (False, True):
        chromium.open(file, 1280, dark=dark)
        papers.append(chromium.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert papers == ["rgb(255, 255, 255)", "rgb(20, 23, 28)"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_click_sorts_a_table_by_number_and_another_the_other_way(
    chromium: Browser, tmp_path: pathlib.Path, width: int
) -> None:
    chromium.open(written(inspected("adam"), tmp_path), width, dark=False)
    column = f"{HEAD}.findIndex((h) => h.textContent === 'Size')"
    sizes = f"{SHOWN}.map((r) => Number(r.cells[{column}].dataset.key))"
    for state in ("ascending", "descending"):
        chromium.evaluate(f"{HEAD}[{column}].querySelector('button').click()")
        assert chromium.evaluate(f"{HEAD}[{column}].ariaSort") == state
        assert chromium.evaluate(sizes) == sorted(
            (40, 256, 2560, 4096), reverse=state == "descending"
        )
    assert chromium.evaluate(f"{HEAD}.filter((h) => h.ariaSort !== 'none').length") == 1
    assert chromium.complaints == []


def test_a_long_table_unfolds_and_sorts_by_all_of_its_rows(
    chromium: Browser, tmp_path: pathlib.Path
) -> None:
    inspection = answer("w", variables=30)
    chromium.open(written(dataclasses.replace(inspection, notes=()), tmp_path), 1280, dark=False)
    name = f"{SHOWN}[0].cells[0].textContent"
    assert chromium.evaluate(f"{SHOWN}.length") == 20
    for expected in ("w0", "w29"):
        chromium.evaluate(f"{HEAD}[0].querySelector('button').click()")
        assert chromium.evaluate(name) == expected
        assert chromium.evaluate(f"{SHOWN}.length") == 20
    more = f"{TABLE}.parentElement.querySelector('button.more')"
    assert chromium.evaluate(f"{more}.textContent") == "Show all 30"
    chromium.evaluate(f"{more}.click()")
    assert chromium.evaluate(f"{SHOWN}.length") == 30
    assert chromium.evaluate(f"{more}.ariaExpanded") == "true"


def test_a_keyboard_reaches_values_and_heads_and_sorts(
    chromium: Browser, tmp_path: pathlib.Path
) -> None:
    chromium.open(written(inspected("adam"), tmp_path), 1280, dark=False)
    focused = "document.activeElement"
    chromium.press("Tab")
    assert "2 replicas: without sharding" in chromium.evaluate(f"{focused}.ariaLabel")
    assert chromium.evaluate(f"{focused}.querySelector('.tip').checkVisibility()")
    for _ in range(60):
        chromium.press("Tab")
        if chromium.evaluate(f"{focused}.tagName") == "BUTTON":
            break
    assert chromium.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
    chromium.press("Enter")
    assert chromium.evaluate(f"{focused}.parentElement.ariaSort") == "ascending"


@pytest.mark.parametrize("width", WIDTHS)
def test_pointing_at_the_curves_tells_exact_values_inside_of_the_window(
    chromium: Browser, tmp_path: pathlib.Path, width: int
) -> None:
    chromium.open(written(inspected("adam"), tmp_path), width, dark=False)
    count = chromium.evaluate("document.querySelectorAll('.reading').length")
    assert count == 20
    for number in range(count):
        reading = f"document.querySelectorAll('.reading')[{number}]"
        chromium.evaluate(f"{reading}.scrollIntoView({{block: 'center'}})")
        place = chromium.evaluate(
            f"(() => {{ const b = {reading}.getBoundingClientRect();"
            " return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        chromium.point(*place)
        assert chromium.evaluate(f"{reading}.querySelector('.tip').checkVisibility()")
        tip = f"{reading}.querySelector('.tip').getBoundingClientRect()"
        assert chromium.evaluate(f"{tip}.left") >= 0
        assert chromium.evaluate(OVERFLOWING) == []


def test_each_dot_stands_beside_its_line(chromium: Browser, tmp_path: pathlib.Path) -> None:
    for width in WIDTHS:
        chromium.open(written(inspected("adam"), tmp_path), width, dark=False)
        heights = chromium.evaluate(
            "[...document.querySelectorAll('.steps')].map((s) => ["
            "s.querySelector('svg').getBoundingClientRect().height,"
            "s.querySelector('ol').getBoundingClientRect().height])"
        )
        assert len(heights) == 2
        assert all(drawing == pytest.approx(lines, abs=1) for drawing, lines in heights)


def test_the_browser_notices_what_goes_wrong(chromium: Browser, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "wrong.html"
    file.write_text(
        "<body style='color:#999'>faint<p style='width:9999px'>wide</p>"
        "<script>console.error('said'); nothing.there()</script>"
    )
    chromium.open(file, 400, dark=False)
    assert len(chromium.complaints) == 2
    assert len(chromium.evaluate(OVERFLOWING)) == 1
    assert len(chromium.evaluate(FAINT)) == 2
