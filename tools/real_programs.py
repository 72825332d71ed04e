"""Trains every program of tests/real, sharded and not, and writes the table of the results.

    python -m tools.real_programs [--check] [--only NAME ...] [--ground GROUND ...] [--repeats N]

Writes docs/real_programs.md as it goes; what stands there below the tool's part stays. With --check
nothing is written: lines that are not what the page says are listed. With --only or --ground these
alone run, and the page's other cells stay. Exits with 1 if a run fails or is not as it says.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import statistics
import sys
from collections.abc import Sequence

from tests.real.outcome import Outcome

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "real_programs.md"


# Programs measured between two writings of the page.
_AT_A_TIME = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, prints, writes or compares, and returns the exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Loads TensorFlow.
    from tests.real.corpus import programs
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
    wanted = [
        (name, ground)
        for ground in chosen.ground or GROUNDS
        for name in chosen.only or known
        if ground not in known[name].refused
    ]
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    on_page, repeats, rest = parsed(page)
    if not (chosen.only or chosen.ground):
        repeats = str(chosen.repeats)
    found: dict[tuple[str, str], Cell] = {}
    failures: list[str] = []
    for start in range(0, len(wanted), _AT_A_TIME):
        for key, outcome in _measured(wanted[start : start + _AT_A_TIME], chosen.repeats).items():
            found[key] = Cell.of(outcome)
            error = outcome.unsharded or outcome.error
            said = f"\n{error}" if error else "".join(f"\n  {one}" for one in outcome.reasons)
            print(f"{' '.join(key)}: {found[key]}{said}", flush=True)
            failures += [" ".join(key)] if error else []
        if not chosen.check:
            PAGE.write_text(rendered(on_page | found, known, repeats, rest), encoding="utf-8")
    if chosen.check:
        failures += differences(on_page, found)
    for line in failures:
        print(line, file=sys.stderr)
    return 1 if failures else 0


def _measured(wanted: Sequence[tuple[str, str]], repeats: int) -> dict[tuple[str, str], Outcome]:
    """What came of programs, each on a ground; times are medians of some runs."""
    from tests.real.processes import outcomes

    found = {}
    for ground in dict.fromkeys(ground for _, ground in wanted):
        names = [name for name, own in wanted if own == ground]
        runs = [outcomes(ground, names) for _ in range(repeats)]
        for name in names:
            each = [run[name] for run in runs]
            found[name, ground] = dataclasses.replace(
                each[0],
                pass_ms=statistics.median(one.pass_ms for one in each),
                trace_ms=statistics.median(one.trace_ms for one in each),
            )
    return found


if __name__ == "__main__":
    sys.exit(main())
