"""Writes BUILD from the folders of the sources and their imports.

    python -m tools.build_file [--check]

With --check nothing is written; exits with 1 if BUILD is not what would be. A source that is no
Python, and an import of nothing known, is one line of error and the exit status 2.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

from tools.build_targets.sources import Checkout, SourceError
from tools.build_targets.text import COMMAND, build_text

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None, root: pathlib.Path = ROOT) -> int:
    """Writes or compares; returns the exit status."""
    parser = argparse.ArgumentParser(prog="build_file", description="Writes BUILD.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    chosen = parser.parse_args(arguments)
    try:
        text = build_text(Checkout(root))
    except SourceError as error:
        print(f"build_file: {error}", file=sys.stderr)
        return 2
    file = root / "BUILD"
    if not chosen.check:
        file.write_text(text, encoding="utf-8")
    elif not file.is_file() or file.read_text(encoding="utf-8") != text:
        print(f"BUILD is not what the imports say; {COMMAND} writes it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
