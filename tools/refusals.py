"""Writes the documentation's page of every reason for which an update is left as it was.

    python -m tools.refusals [--check]

Writes docs/refusals.md from the catalogue in tf_wu_shard/refusals. With --check nothing is written;
exits with 1 if the page is not what the catalogue says.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.refusals import Kind

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "refusals.md"

_BEGINNING = """\
# Reasons

Whatever is left alone has one of these reasons. This page is made by `python -m tools.refusals`.

The first column is the reason's `kind`, as [reports](reports.md) and `report.to_json()` have it;
its name does not change, while its words may. What stands in *italics* is named where the reason is
found, and is in the report's `detail`.
"""

_TITLES = {
    refusals.Topology: "The whole function",
    refusals.Branches: "Branches that apply gradients",
    refusals.Calls: "Functions that apply gradients",
    refusals.Updates: "From the gradient to the weight",
    refusals.Replicas: "Replicas that differ",
    refusals.Rules: "Ops and their rules",
    refusals.Rows: "Rows of a table",
    refusals.Matrices: "Whole tensors and owners",
    refusals.Plan: "What pays and fits",
    refusals.Storage: "Variables in shards",
    refusals.Compiling: "Sharded, but not compiled",
    refusals.Inspection: "Steps on one device",
}


def page() -> str:
    """The page as Markdown."""
    return "\n".join([_BEGINNING, *(line for group in refusals.GROUPS for line in _table(group))])


def _table(group: type[Kind]) -> Iterator[str]:
    yield f"## {_TITLES[group]}\n\n{group.__doc__}\n"
    yield "| kind | what it says | what lifts it |\n| --- | --- | --- |"
    for kind in group:
        yield f"| `{kind.key}` | {_said(kind.says)} | {_said(kind.cure) or 'nothing known'} |"
    yield ""


def _said(sentence: str) -> str:
    """A sentence with the names of its values in italics."""
    escaped = re.sub(r"([*_<|])", r"\\\1", sentence)
    return re.sub(
        r"\{([^!}]*)(![rs])?\}",
        lambda m: f"*{m[1]}*".replace("\\_", " ").replace("*it*", "it"),
        escaped,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or compares the page, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="refusals", description="Tables every reason.")
    parser.add_argument("--check", action="store_true", help="compare with the page, write nothing")
    chosen = parser.parse_args(arguments)
    if not chosen.check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE} is not what the catalogue says: run python -m tools.refusals", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
