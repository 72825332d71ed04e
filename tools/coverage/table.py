"""The coverage matrix as a page: cells to Markdown and back, the same text for the same cells.

Imports no TensorFlow: what the page says is known without training anything.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from tools.coverage.features import FEATURES

DIALECTS: dict[str, str] = {
    "mirrored": "MirroredStrategy, 2 replicas in one process",
    "tpu": "TPUStrategy, 4 emulated replicas",
}

_INTRODUCTION = """\
# Coverage

Every optimizer with every training feature. This page is made by `python -m tools.coverage_matrix`.

Each cell is a net of two matrices and two biases (`embedding`: a table, a matrix and a bias),
trained for 4 steps unsharded and 4 steps sharded. All weights and slots are compared.

- **exact**: both matrices are updated in shards, or each by one replica for all (Muon in one
  process), and no weight or slot differs by a bit.
- **within 5e-6**, **within 2e-5**: both are updated in shards, and nothing differs by more than
  this part of its tensor's largest element. Norms and means are sums over all shards, rounded in
  another order; how far that moves a training depends on the processor.
- **partly**: one of the matrices is updated in shards; the note says why the other is not.
- **alone**: the updates of both stay as they were, and so do the results; the note says why.
- **n/a**: the unsharded training raises this error.
- **-**: the optimizer has no such option.

Biases are sharded in one process, and too small for tiles on TPUs. Gradient accumulators stay
whole: each replica adds up gradients of its own, before they are reduced.
"""

_CELL = re.compile(r"(?P<text>[^()]*?)(?: \((?P<notes>[\d, ]+)\))?")


@dataclasses.dataclass(frozen=True)
class Cell:
    """What came of one optimizer with one feature.

    Attributes:
        text: The verdict.
        notes: Reasons for what is not sharded.
    """

    text: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.text} ({'; '.join(self.notes)})" if self.notes else self.text


@dataclasses.dataclass(frozen=True)
class Matrix:
    """The whole table.

    Attributes:
        classes: For each row the class of its optimizer.
        cells: By dialect, row and feature.
    """

    classes: Mapping[str, str]
    cells: Mapping[tuple[str, str, str], Cell]


def rendered(matrix: Matrix) -> str:
    """The page; its notes are numbered in the order in which cells name them."""
    numbers: dict[str, int] = {}
    page = [_INTRODUCTION]
    titles = [feature.title for feature in FEATURES.values()]
    for dialect, heading in DIALECTS.items():
        lines = [f"## {heading}", "", _line(["optimizer", "class", *titles])]
        lines.append(_line(["---"] * (len(titles) + 2)))
        for row, made in matrix.classes.items():
            cells = [matrix.cells[dialect, row, feature] for feature in FEATURES]
            for note in (note for cell in cells for note in cell.notes):
                numbers.setdefault(note, len(numbers) + 1)
            texts = [_numbered(cell, numbers) for cell in cells]
            lines.append(_line([f"`{row}`", f"`{made}`", *texts]))
        page.append("\n".join(lines) + "\n")
    notes = "\n".join(f"{number}. {note}" for note, number in numbers.items())
    page.append(f"## Notes\n\n{notes or 'None.'}\n")
    return "\n".join(page)


def parsed(page: str) -> Matrix:
    """The matrix of a page that `rendered` wrote.

    Raises:
        ValueError: A row has another number of cells than there are features, or a cell names a
            note that is not there: the page was made with other features, or edited.
    """
    notes = dict(re.findall(r"^(\d+)\. (.*)$", page, re.MULTILINE))
    classes: dict[str, str] = {}
    cells: dict[tuple[str, str, str], Cell] = {}
    dialect = ""
    for line in page.splitlines():
        if line.startswith("## "):
            dialect = next((d for d, heading in DIALECTS.items() if heading == line[3:]), "")
        if not dialect or not line.startswith("| `"):
            continue
        row, made, *texts = (text.strip() for text in line.strip("|").split("|"))
        if len(texts) != len(FEATURES):
            raise ValueError(f"{row} has {len(texts)} cells for {len(FEATURES)} features")
        classes[row.strip("`")] = made.strip("`")
        for feature, text in zip(FEATURES, texts, strict=True):
            cells[dialect, row.strip("`"), feature] = _read(text, notes)
    return Matrix(classes, cells)


def _line(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _numbered(cell: Cell, numbers: Mapping[str, int]) -> str:
    named = ", ".join(str(numbers[note]) for note in cell.notes)
    return f"{cell.text} ({named})" if named else cell.text


def _read(text: str, notes: Mapping[str, str]) -> Cell:
    match = _CELL.fullmatch(text)
    named = (match["notes"] or "").split(", ") if match else []
    if match is None or any(number and number not in notes for number in named):
        raise ValueError(f"{text!r} is no cell of the coverage matrix")
    return Cell(match["text"], tuple(notes[number] for number in named if number))
