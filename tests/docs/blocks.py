"""The code blocks of a Markdown page, and what each of them is there for.

A page is README.md, CONTRIBUTING.md or one of docs/. What a fence says and what stands in the line
above it decide:

- `python`: run, in the namespace that all such blocks of a page share. If its first line is a
  comment that names a file (`# train.py`), it is written to that file, for a command to run.
- `pycon`: run line by line, each answer compared.
- `console`: each line after `$` is a command, run in the page's folder; where lines follow that are
  no commands, what it prints is compared with them.
- `text`: what the block above has printed.
- `<!-- not run: why -->` above a block: nothing of it is run; a command is held against its parser.

Answers are compared as doctest does, where `...` stands for anything.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt

from tests.project.imports import ROOT

KINDS = ("python", "pycon", "console", "text")

PAGES = tuple(
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
    )
)

_NOT_RUN = re.compile(r"<!-- not run: (.+) -->", re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")


@dataclasses.dataclass(frozen=True)
class Block:
    """One code block.

    Attributes:
        page: The page, relative to the root.
        line: The line of its first line of code, from 1.
        kind: What its fence says.
        text: Its code.
        not_run: Why it is not run; "" for one that is.
    """

    page: str
    line: int
    kind: str
    text: str
    not_run: str

    @property
    def place(self) -> str:
        """Where it stands, as editors take it."""
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The file that it is to be written to; "" for none."""
        match = _FILE.match(self.text) if self.kind == "python" else None
        return match[1] if match else ""

    def commands(self) -> Iterator[tuple[str, str]]:
        """The commands of a console, each with what it is said to print; "" if nothing is."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            joined = part.replace("\\\n", " ")
            command, _, printed = joined.partition("\n")
            yield command, printed


def blocks_of(page: str) -> tuple[Block, ...]:
    """The code blocks of a page, in their order; directives of Sphinx are none."""
    found = []
    above = ""
    for token in MarkdownIt().parse((ROOT / page).read_text(encoding="utf-8")):
        if token.type == "fence" and not token.info.startswith("{"):
            assert token.map is not None
            reason = _NOT_RUN.search(above)
            why = " ".join(reason[1].split()) if reason else ""
            found.append(Block(page, token.map[0] + 2, token.info, token.content, why))
        assert token.type != "code_block", f"{page}: a code block without a fence at {token.map}"
        above = token.content if token.type == "html_block" else ""
    return tuple(found)
