"""Trains every program of tests/real, sharded and not, and writes the table of the results.

    python -m tools.real_programs [--check] [--only NAME ...] [--ground GROUND ...] [--repeats N]

Writes docs/real_programs.md; what stands there below the tool's part stays. With --check nothing is
written: lines that are not what the page says are listed. With --only or --ground these alone run,
and the page's other cells stay. Exits with 1 if a run fails or is not what the page says.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import statistics
import sys
from collections.abc import Sequence

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "real_programs.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, prints, writes or compares, and returns the exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Loads TensorFlow.
    from tests.real.corpus import programs
    from tests.real.processes import outcomes
    from tests.real.program import GROUNDS
    from tools.real.table import Cell, differences, parsed, rendered

    known = programs()
    parser = argparse.ArgumentParser(
        prog="real_programs", description="Tables what sharding does to programs as people write."
    )
    parser.add_argument("--check", action="store_true", help="compare with the page, write nothing")
    parser.add_argument("--only", action="append", metavar="NAME", choices=known, help="a program")
    parser.add_argument("--ground", action="append", choices=GROUNDS, help="only there")
    parser.add_argument("--repeats", type=int, default=1, help="times are medians of so many runs")
    chosen = parser.parse_args(arguments)
    found: dict[tuple[str, str], Cell] = {}
    failures: list[str] = []
    for ground in chosen.ground or GROUNDS:
        wanted = [n for n in chosen.only or known if ground not in known[n].refused]
        runs = [outcomes(ground, wanted) for _ in range(chosen.repeats)]
        for name in wanted:
            each = [run[name] for run in runs]
            outcome = dataclasses.replace(
                each[0],
                pass_ms=statistics.median(one.pass_ms for one in each),
                trace_ms=statistics.median(one.trace_ms for one in each),
            )
            found[name, ground] = Cell.of(outcome)
            error = outcome.unsharded or outcome.error
            said = f"\n{error}" if error else "".join(f"\n  {one}" for one in outcome.reasons)
            print(f"{ground} {name}: {found[name, ground]}{said}", flush=True)
            failures += [f"{ground} {name}"] if error else []
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    on_page, repeats, rest = parsed(page)
    if chosen.check:
        failures += differences(on_page, found)
    else:
        if not (chosen.only or chosen.ground):
            on_page, repeats = {}, str(chosen.repeats)
        PAGE.write_text(rendered(on_page | found, known, repeats, rest), encoding="utf-8")
    for line in failures:
        print(line, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
