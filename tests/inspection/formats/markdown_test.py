"""Claims about the Markdown: a reader of CommonMark and tables sees every name as it is."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.inspection.made_answers import HOSTILE, answer
from tf_wu_shard.inspection.answers.answer import Inspection
from tf_wu_shard.inspection.formats.markdown import as_markdown, code, escaped

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])

NAMES = (
    *("a|b", "`", "``a`", " a ", "a\\", "<b>", "*a*", "_a_", "# a", "- a", "1. a", "+ a", "---"),
    *("==", "> a", "[a](b)", "![a](b)", "&lt;", "~~a~~", "a\\|b", "<http://a>", "||", "\\`"),
)


def tokens(text: str) -> list[Token]:
    found = []
    for token in READER.parse(text):
        found += [token, *(token.children or ())]
    return found


def shown(text: str) -> str:
    return "".join(t.content for t in tokens(text) if t.type in ("text", "text_special"))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_table_is_code_and_reads_as_it_is(name: str) -> None:
    found = tokens(f"| a |\n| --- |\n| {code(name)} |")
    (cell,) = (t.content for t in found if t.type == "code_inline")
    assert cell.strip() == name.strip()
    assert sum(t.type == "td_open" for t in found) == 1


@pytest.mark.parametrize("text", NAMES)
def test_text_reads_as_it_is(text: str) -> None:
    assert {t.type for t in tokens(escaped(text))} <= {
        *("paragraph_open", "inline", "text", "text_special", "paragraph_close")
    }
    assert shown(escaped(text)) == text.strip()


def test_no_name_becomes_markup() -> None:
    plain = [t.type for t in tokens(as_markdown(answer("w"))) if not t.type.startswith("text")]
    hostile = tokens(as_markdown(answer(HOSTILE)))
    assert [t.type for t in hostile if not t.type.startswith("text")] == plain
    assert all(c.isprintable() or c == "\n" for c in as_markdown(answer(HOSTILE)))


def test_an_address_in_a_name_is_no_link_on_a_code_host() -> None:
    assert "http://" not in escaped("http://a") and "www." not in escaped("www.a")


def test_a_model_of_5000_variables_stays_small_and_says_what_is_left_out() -> None:
    text = as_markdown(answer("layer/kernel", variables=5000))
    assert len(text) < 200_000 and "The 300 largest of 5,000" in text


def test_it_says_what_the_page_says() -> None:
    text = as_markdown(answer("w", variables=2))
    assert text.startswith("# Weight-update sharding of `w`\n")
    assert (
        "**50 % of 4,096 elements and 50 % of 16.4 kB of slots: 1 of 2 variables would be sharded"
        " over 8 replicas**"
    ) in text
    titles = ("## w", "### Left alone", "### Variables", "### Memory of the fullest replica")
    assert all(f"\n{title}\n" in text for title in titles)
    assert "| `w1` | no rule for w | `w, made by w` | an update without w" in text


def test_a_model_without_a_function_is_a_page_too() -> None:
    assert "nothing to shard" in as_markdown(Inspection("GraphDef", 0, (), ()))
