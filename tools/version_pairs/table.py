"""The table of docs/versions.md: a row for each TensorFlow and interpreter, written and read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

# What a pair's environment holds beside TensorFlow that the package knows.
PACKAGES = ("keras", "tf-keras", "tensorflow-text", "numpy", "protobuf")

NO_WHEELS = "no wheels of "
AGREES = "agrees"
NOT_RUN = "-"

_TEXT = """# Versions

The package supports TensorFlow {first} to {last} on Python {oldest} and later. This page is made by
`python -m tools.versions`: for each supported TensorFlow and each interpreter that it finds, an
environment with the newest packages that go with them, in which the package is installed from a
wheel, outside of its checkout.

- **sample**: what came of the tests in {sample}.
- **demo**: whether `wu-shard demo --quick` found that the sharded and the unsharded runs agree; the
  oldest and the newest TensorFlow run it, on one interpreter.

Pairs for which there are no wheels say of what. The other tests run on the versions that
`constraints.txt` pins.

{table}
A TensorFlow that lacks a private name that the package uses is told so in one line when the package
is imported, or TensorFlow after it: `UnsupportedTensorFlowError` says what is missing and what to
install.
"""

_HEADINGS = ("TensorFlow", "Python", *PACKAGES, "sample", "demo")


@dataclasses.dataclass(frozen=True)
class Row:
    """What came of one pair.

    Attributes:
        tensorflow: The version installed, or the minor version where none was.
        python: The interpreter's version.
        packages: The versions of `PACKAGES`; empty where nothing was installed.
        sample: How many tests passed and failed, or what there are no wheels of.
        demo: What came of the demo.
    """

    tensorflow: str
    python: str
    packages: tuple[str, ...] = ()
    sample: str = ""
    demo: str = NOT_RUN

    @property
    def pair(self) -> tuple[str, str]:
        """The minor versions: "2.18" and "3.11"."""
        return minor(self.tensorflow), minor(self.python)

    @property
    def is_well(self) -> bool:
        """Whether nothing failed: there are no wheels, or all is as it should be."""
        passed = re.fullmatch(r"\d+ passed(, \d+ skipped)?", self.sample)
        return self.sample.startswith(NO_WHEELS) or (
            passed is not None and self.demo in (AGREES, NOT_RUN)
        )


def minor(version: str) -> str:
    """The minor version of a version: "2.18" of "2.18.1"."""
    return ".".join(version.split(".")[:2])


def rendered(rows: Iterable[Row], *, first: str, last: str, oldest: str, sample: str) -> str:
    """The page.

    Args:
        rows: What came of each pair.
        first: The oldest TensorFlow that is supported.
        last: The newest one.
        oldest: The oldest Python.
        sample: The tests that were run, as Markdown.
    """
    lines = [_line(_HEADINGS), _line(["---"] * len(_HEADINGS))]
    for row in sorted(rows, key=lambda row: [_numbers(version) for version in row.pair]):
        packages = row.packages or (NOT_RUN,) * len(PACKAGES)
        lines.append(_line((row.tensorflow, row.python, *packages, row.sample, row.demo)))
    table = "".join(f"{line}\n" for line in lines)
    return _TEXT.format(first=first, last=last, oldest=oldest, sample=sample, table=table)


def parsed(page: str) -> dict[tuple[str, str], Row]:
    """The rows of a page, by their pairs."""
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(_HEADINGS) and re.fullmatch(r"[\d.]+", cells[0]):
            tensorflow, python, *packages, sample, demo = cells
            installed = () if set(packages) == {NOT_RUN} else tuple(packages)
            row = Row(tensorflow, python, installed, sample, demo)
            rows[row.pair] = row
    return rows


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
