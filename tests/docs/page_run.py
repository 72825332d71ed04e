"""Runs the code blocks of one page, in their order, in this process and in the current folder.

    python -m tests.docs.page_run PAGE

Ends with 1 and the block's place where one fails or prints something else than its page shows.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import pathlib
import shlex
import subprocess
import sys
from typing import Any

from tests.docs.blocks import Block, blocks_of
from tests.project.imports import ROOT

# Tables are broken and padded as the page has them, or a reader sees something else.
_FLAGS = doctest.ELLIPSIS

# Names of a shell that mean this environment's own.
_PROGRAMS = {
    "python": (sys.executable,),
    "wu-shard": (sys.executable, "-m", "tf_wu_shard.cli.main"),
}


class PageError(Exception):
    """A block does not do what its page says."""


def run(page: str) -> None:
    """Runs a page.

    Raises:
        PageError: A block printed something else than its page shows, or a command failed.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks_of(page):
        if block.not_run:
            continue
        if block.kind == "text":
            _compare(block, block.text, printed)
        elif block.file:
            pathlib.Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            printed = _executed(block, namespace)
        elif block.kind == "pycon":
            _answered(block, namespace)
        else:
            printed = "".join(_commanded(block, *pair) for pair in block.commands())


def _executed(block: Block, namespace: dict[str, Any]) -> str:
    """Runs Python, from a file, as TensorFlow reads the source of what it traces."""
    file = pathlib.Path(f"line_{block.line}.py").absolute()
    file.write_text("\n" * (block.line - 1) + block.text, encoding="utf-8")
    printed = io.StringIO()
    code = compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def _answered(block: Block, namespace: dict[str, Any]) -> None:
    parser = doctest.DocTestParser()
    test = parser.get_doctest(block.text, namespace, block.page, block.page, block.line - 1)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=said.append, clear_globs=False)
    namespace.update(test.globs)
    if said:
        raise PageError("".join(said))


def _commanded(block: Block, command: str, shown: str) -> str:
    name, *arguments = shlex.split(command)
    done = subprocess.run(
        [*_PROGRAMS.get(name, (name,)), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise PageError(f"{block.place}: {command} ended with {done.returncode}: {done.stderr}")
    if shown:
        _compare(block, shown, done.stdout)
    return done.stdout


def _compare(block: Block, shown: str, printed: str) -> None:
    # A page has no blanks at the end of its lines.
    found = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    if not doctest.OutputChecker().check_output(shown, found, _FLAGS):
        raise PageError(f"{block.place}: the page shows\n{shown}\nand what is printed is\n{found}")


if __name__ == "__main__":
    run(sys.argv[1])
