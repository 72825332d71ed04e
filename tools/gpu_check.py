"""Tries the sharded update on several GPUs and writes a report to send to the project.

    python -m tools.gpu_check [--gpus N] [--logical-cpus N] [--output FILE]

Small programs train unsharded and sharded, with `ShardingOptions(dialect="collective")`, each run
in a process of its own. Their weights and slots are compared, their steps timed in turn, their
memory and collectives noted. Everything goes into one JSON file, what matters onto the terminal.
Exits with 1 where something is wrong, with 2 where there are no two GPUs. With --logical-cpus it
does the same on logical CPU devices, which tries the check and says nothing about GPUs.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

from tools.gpu import machine
from tools.gpu.judgement import Result, Trained, judged
from tools.gpu.launches import Outcome, Setting
from tools.gpu.machine import MachineError
from tools.gpu.programs import PROGRAMS
from tools.gpu.report import Check
from tools.gpu.running import left_in, run_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, compares, writes the report, prints the table; returns the exit status."""
    chosen = _parser().parse_args(arguments)
    on_gpus = chosen.logical_cpus is None
    try:
        found = machine.look(on_gpus)
        replicas = chosen.logical_cpus
        if on_gpus:
            replicas = machine.gpus_to_use(found["gpus"], chosen.gpus, found["nvidia_smi"])
    except MachineError as error:
        print(f"gpu_check: error: {error}", file=sys.stderr)
        return 2
    setting = Setting(
        replicas=replicas,
        on_gpus=on_gpus,
        tiny=chosen.tiny,
        timed_steps=chosen.steps,
        pairs=chosen.pairs,
        limit_s=chosen.limit,
    )
    check = Check(found, setting, (), (), is_whole=False)
    try:
        chosen.output.write_text(check.to_json(), encoding="utf-8")
    except OSError as error:
        print(f"gpu_check: error: --output cannot be written: {error}", file=sys.stderr)
        return 2
    names = tuple(dict.fromkeys(chosen.only or PROGRAMS))
    for name in names:
        result, outcomes = _tried(name, setting)
        check = dataclasses.replace(
            check,
            results=(*check.results, result),
            outcomes=(*check.outcomes, *outcomes),
            is_whole=name == names[-1],
        )
        # As it goes, so that a report is there even if the machine does not last.
        chosen.output.write_text(check.to_json(), encoding="utf-8")
    print(check)
    print(f"the report is in {chosen.output}: read it, then open an issue with it")
    return 1 if check.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_check",
        description="Tries the sharded update on several GPUs and writes a report.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--gpus", type=_at_least(2), metavar="N", help="only the first N of them")
    where.add_argument(
        "--logical-cpus", type=_at_least(2), metavar="N", help="no GPUs: N devices of one CPU"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, metavar="FILE", default="gpu_check.json", help="the report"
    )
    parser.add_argument("--only", action="append", choices=PROGRAMS, help="this program alone")
    parser.add_argument("--pairs", type=_at_least(1), default=3, help="pairs of timed runs")
    parser.add_argument("--steps", type=_at_least(1), default=30, help="timed steps of a run")
    parser.add_argument("--tiny", action="store_true", help="small programs, to try the check")
    parser.add_argument(
        "--limit", type=_at_least(1), default=600, metavar="SECONDS", help="a longer run hangs"
    )
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    """A type of argument: integers from `least`."""

    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {value}")
        return value

    return integer


def _tried(name: str, setting: Setting) -> tuple[Result, tuple[Outcome, ...]]:
    """Runs a program's launches and judges them."""
    with tempfile.TemporaryDirectory(prefix="gpu_check-") as place:
        folder = pathlib.Path(place)
        outcomes = run_all(name, setting, folder, _say)
        trained = {
            one.launch.mode: _trained(left_in(folder, one.launch), one)
            for one in outcomes
            if not one.launch.timed and not one.trouble
        }
        return judged(name, setting, outcomes, trained), outcomes


def _trained(folder: pathlib.Path, outcome: Outcome) -> Trained:
    """Reads what a compared launch left, all of it, as its files do not stay."""
    arrays = []
    for file in ("weights.npz", "slots.npz"):
        with np.load(folder / file) as loaded:
            arrays.append(dict(loaded))
    return Trained(outcome.facts, *arrays)


def _say(line: str) -> None:
    print(f"gpu_check: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
