"""Trains every optimizer with every training feature, sharded and not, and writes the table.

    python -m tools.coverage_matrix [--check] [--only NAME ...] [--feature NAME ...]

Prints the table and writes it to docs/coverage.md. With --check nothing is written: cells that are
not what the page says are listed. With --only these optimizers alone are trained, with --feature
these columns alone, and the page's other cells stay. Exits with 1 if a cell is wrong or not what
the page says.
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
    parser.add_argument("--only", action="append", metavar="NAME", help="only this row")
    parser.add_argument("--feature", action="append", metavar="NAME", help="only this column")
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Loads TensorFlow.
    from tools.coverage.features import FEATURES
    from tools.coverage.processes import cells_of
    from tools.coverage.rows import ROWS, class_name

    rows = chosen.only or [*ROWS]
    features = chosen.feature or [*FEATURES]
    for kind, given, known in (("row", rows, ROWS), ("column", features, FEATURES)):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"no {kind} {', '.join(unknown)}; there are {', '.join(known)}")
    cells = cells_of([(row, feature) for row in rows for feature in features])
    said = Matrix({}, {})
    if chosen.check or chosen.only or chosen.feature:
        said = parsed(PAGE.read_text(encoding="utf-8"))
    all_cells = {**said.cells, **cells}
    print(rendered(Matrix({row: class_name(row) for row in rows}, all_cells)))
    wrong = [key for key, cell in cells.items() if cell.text.startswith(WRONG)]
    differing = differences(said, cells) if chosen.check else []
    if not chosen.check:
        named = {row: class_name(row) for row in ROWS if row in rows or row in said.classes}
        PAGE.write_text(rendered(Matrix(named, all_cells)), encoding="utf-8")
    for key in wrong:
        print(f"{' '.join(key)}: {cells[key]}", file=sys.stderr)
    for line in differing:
        print(line, file=sys.stderr)
    return 1 if wrong or differing else 0


def differences(page: Matrix, found: Mapping[tuple[str, str, str], Cell]) -> list[str]:
    """A line for each cell that is not what the page says.

    Where an optimizer's plain training is rounded otherwise in shards, a cell of it that is exact
    is so by luck, and another processor need not have it.
    """
    wrong = []
    for key, cell in found.items():
        dialect, row, _ = key
        said = page.cells.get(key)
        plain = page.cells.get((dialect, row, "plain"))
        by_luck = said == Cell("exact") and plain is not None and agree(plain, cell)
        if said is None or not (agree(said, cell) or by_luck):
            wrong.append(f"{' '.join(key)}: the page says {said or 'nothing'}, found {cell}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
