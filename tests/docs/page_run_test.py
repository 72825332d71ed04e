"""A page that does not do what it says is caught: the checks of pages can fail."""

from __future__ import annotations

import pathlib

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.page_run import PageError, run

PRINTS_ONE = "```python\nprint(1)\n```\n\n"
WRITES_A_FILE = "```python\n# one.py\nprint(1)\n```\n\n"


@pytest.fixture
def page(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where a page may be written; what it runs is run beside it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "page.md"


@pytest.mark.parametrize(
    "text",
    [
        PRINTS_ONE + "```text\n1\n```\n",
        "```python\na = 1\n```\n\n```python\nassert a == 1\n```\n",
        "```python\na = 1\n```\n\n```pycon\n>>> a\n1\n```\n",
        WRITES_A_FILE + "```console\n$ python one.py\n1\n$ python \\\n  one.py\n1\n```\n",
        WRITES_A_FILE + "```console\n$ python one.py\n```\n",
        "<!-- not run: it\nwould fail -->\n```console\n$ python no_file.py\n```\n",
        "```{directive}\nno code\n```\n",
        "```python\nprint('took 3 s, 1 step  ')\n```\n\n```text\ntook ... s, 1 step\n```\n",
    ],
)
def test_a_page_that_does_what_it_says(page: pathlib.Path, text: str) -> None:
    page.write_text(text)
    run(str(page))


@pytest.mark.parametrize(
    "text",
    [
        PRINTS_ONE + "```text\n2\n```\n",
        PRINTS_ONE + PRINTS_ONE.replace("1", "2") + "```text\n1\n```\n",
        "```pycon\n>>> 1\n2\n```\n",
        "```console\n$ python no_file.py\n```\n",
        WRITES_A_FILE + "```console\n$ python one.py\n2\n```\n",
        WRITES_A_FILE + "```console\n$ python one.py\n2\n$ python one.py\n1\n```\n",
    ],
)
def test_a_page_that_does_not(page: pathlib.Path, text: str) -> None:
    page.write_text(text)
    with pytest.raises(PageError, match=r"page\.md"):
        run(str(page))


def test_an_error_is_told_with_the_line_of_the_page(page: pathlib.Path) -> None:
    page.write_text("# Title\n\n```python\na = 1\na.b\n```\n")
    with pytest.raises(AttributeError) as caught:
        run(str(page))
    assert caught.traceback[-1].lineno == 4


def test_indented_code_is_no_way_around(page: pathlib.Path) -> None:
    page.write_text("Text\n\n    code\n")
    with pytest.raises(AssertionError, match="without a fence"):
        blocks_of(str(page))
