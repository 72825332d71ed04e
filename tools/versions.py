"""Tries the package on every supported TensorFlow and every interpreter, and writes the table.

    python -m tools.versions [--tensorflow VERSION ...] [--python VERSION ...]

Makes an environment for each pair, one at a time, in a temporary folder; prints the table and
writes it to docs/versions.md. With --tensorflow or --python these alone are tried, and the page's
other rows stay. On a quiet machine of two cores a pair takes about three minutes, and the demo,
which the oldest and the newest TensorFlow run, as long again; needs the network.
Exits with 1 if a pair is not as it should be.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Iterable, Sequence

from tf_wu_shard.tensorflow_private.required_names import SUPPORTED
from tools.version_pairs import table
from tools.version_pairs.environments import SAMPLE, EnvironmentFailure, Environments
from tools.version_pairs.interpreters import OLDEST, interpreters

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "versions.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries, prints, writes, and returns the exit status."""
    found = interpreters()
    parser = argparse.ArgumentParser(
        prog="versions", description="Tables which TensorFlow and Python the package is tried on."
    )
    parser.add_argument("--tensorflow", action="append", choices=SUPPORTED, help="only this one")
    parser.add_argument("--python", action="append", choices=[*found], help="only this one")
    chosen = parser.parse_args(arguments)
    pythons = [version for version in found if version in (chosen.python or found)]
    rows = table.parsed(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    if not (chosen.tensorflow or chosen.python):
        rows = {}
    failed = False
    with tempfile.TemporaryDirectory(prefix="versions_") as name:
        environments = Environments.in_folder(pathlib.Path(name))
        for tensorflow in chosen.tensorflow or SUPPORTED:
            for python in pythons:
                rows.pop((tensorflow, python), None)
            # The newest interpreter with wheels runs it; `make demo` runs on the oldest.
            ran = {row.pair[0] for row in rows.values() if row.demo != table.NOT_RUN}
            demo_is_due = tensorflow in {SUPPORTED[0], SUPPORTED[-1]} - ran
            for python in reversed(pythons):
                _say(f"TensorFlow {tensorflow} on Python {python}")
                try:
                    row = environments.tried(tensorflow, found[python], with_demo=demo_is_due)
                except EnvironmentFailure as error:
                    _say(f"no environment: {error}")
                    failed = True
                    continue
                demo_is_due = demo_is_due and row.demo == table.NOT_RUN
                rows[row.pair] = row
                _say(str(row))
                PAGE.write_text(page_of(rows.values()), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    return 1 if failed or not all(row.is_well for row in rows.values()) else 0


def page_of(rows: Iterable[table.Row]) -> str:
    """The page with these rows."""
    *most, last = [f"`{test}`" for test in SAMPLE]
    return table.rendered(
        rows,
        first=SUPPORTED[0],
        last=SUPPORTED[-1],
        oldest=".".join(map(str, OLDEST)),
        sample=f"{', '.join(most)} and {last}",
    )


def _say(line: str) -> None:
    print(f"versions: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
