"""Trains every optimizer with every training feature, sharded and not, and writes the table.

    python -m tools.coverage_matrix [--check] [--only NAME ...]

Prints the table and writes it to docs/coverage.md. With --check nothing is written: cells that are
not what the page says are listed. With --only these optimizers alone are trained, and nothing is
written either. Exits with 1 if a cell is wrong or not what the page says.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence

from tools.coverage.table import Cell, Matrix, parsed, rendered
from tools.coverage.verdict import WRONG, agree

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "coverage.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, prints, writes or compares, and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="coverage_matrix", description="Tables what is sharded, and how exactly."
    )
    parser.add_argument("--check", action="store_true", help="compare with the page, write nothing")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only this row; write nothing"
    )
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Loads TensorFlow.
    from tools.coverage.features import FEATURES
    from tools.coverage.processes import cells_of
    from tools.coverage.rows import ROWS, class_name

    rows = chosen.only or [*ROWS]
    unknown = [row for row in rows if row not in ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    cells = cells_of([(row, feature) for row in rows for feature in FEATURES])
    matrix = Matrix({row: class_name(row) for row in rows}, cells)
    print(rendered(matrix))
    wrong = [key for key, cell in cells.items() if cell.text.startswith(WRONG)]
    differing = differences(parsed(PAGE.read_text(encoding="utf-8")), cells) if chosen.check else []
    if not (chosen.check or chosen.only):
        PAGE.write_text(rendered(matrix), encoding="utf-8")
    for key in wrong:
        print(f"{' '.join(key)}: {cells[key]}", file=sys.stderr)
    for line in differing:
        print(line, file=sys.stderr)
    return 1 if wrong or differing else 0


def differences(page: Matrix, found: Mapping[tuple[str, str, str], Cell]) -> list[str]:
    """A line for each cell that is not what the page says."""
    return [
        f"{' '.join(key)}: the page says {page.cells.get(key, 'nothing')}, found {cell}"
        for key, cell in found.items()
        if not (key in page.cells and agree(page.cells[key], cell))
    ]


if __name__ == "__main__":
    sys.exit(main())
