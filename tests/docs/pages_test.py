"""Every code block of README.md and of the site's pages does what its page says."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tests.docs.blocks import KINDS, PAGES, Block, blocks_of
from tests.project.imports import ROOT
from tests.selection import cases
from tf_wu_shard.cli.main import COMMANDS, parser_of

BLOCKS = tuple(block for page in PAGES for block in blocks_of(page))

# What is only shown takes minutes, a TPU or the network. More of it is a page that nothing holds to
# the truth.
_MOST_NOT_RUN = 10


def place(block: Block) -> str:
    return block.place


# Each takes half a minute and more; `make test-all` runs them.
LONG = {"docs/faq.md", "docs/inspect.md", "docs/what_is_sharded.md"}
RUN = [page for page in PAGES if any(not block.not_run for block in blocks_of(page))]


@pytest.mark.parametrize("page", cases(RUN, {*RUN} - LONG))
def test_every_block_does_what_its_page_says(page: str, tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.page_run", page],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{page}\n{done.stderr[-6000:]}"


@pytest.mark.parametrize("block", BLOCKS, ids=place)
def test_a_block_is_of_a_kind_that_is_run(block: Block) -> None:
    assert block.kind in KINDS, f"{block.place}: a fence says one of {', '.join(KINDS)}"


def test_python_is_always_run() -> None:
    unrun = [block for block in BLOCKS if block.not_run]
    assert {block.kind for block in unrun} <= {"console", "text"}
    assert len(unrun) <= _MOST_NOT_RUN


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.file], ids=place)
def test_a_file_is_run_by_a_command_of_its_page(block: Block) -> None:
    run = [
        command
        for other in BLOCKS
        if other.page == block.page and other.kind == "console" and not other.not_run
        for command, _ in other.commands()
    ]
    assert any(block.file in shlex.split(command) for command in run)


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.not_run and b.kind == "console"], ids=place
)
def test_a_command_that_is_not_run_is_one_that_there_is(block: Block) -> None:
    for command, _ in block.commands():
        name, *arguments = shlex.split(command, comments=True)
        if name == "wu-shard":
            assert arguments[0] in COMMANDS
            # Ends the process on a wrong usage.
            parser_of(arguments[0]).parse_args(arguments[1:])
        elif name == "make":
            subprocess.run(
                ["make", "--dry-run", *arguments], cwd=ROOT, check=True, capture_output=True
            )
        else:
            assert (name, arguments[0]) == ("pip", "install"), command
            known = {*(importlib.metadata.metadata("tf-wu-shard").get_all("Provides-Extra") or ())}
            extras = re.fullmatch(r"(?:tf-wu-shard|\.)(?:\[([\w,-]+)\])?", arguments[1])
            assert extras and {*(extras[1] or "demo").split(",")} <= known, command


@pytest.mark.parametrize("page", PAGES)
def test_files_and_links_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    folder = (ROOT / page).parent
    named = re.findall(r"`((?:tests|tools|tf_wu_shard|models)/[\w/.]*)", text)
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    missing = [file for file in named if not (ROOT / file).exists()]
    missing += [file for file in linked if not (folder / file).exists()]
    assert missing == []
