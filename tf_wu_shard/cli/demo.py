"""`wu-shard demo`: trains and compiles, sharded and not, shows both, and fails if they disagree."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

from tf_wu_shard.demo import compilation, schedule, terminal
from tf_wu_shard.demo.page import page
from tf_wu_shard.demo.processes import Trainer
from tf_wu_shard.demo.runs import TITLES
from tf_wu_shard.errors import OptionError
from tf_wu_shard.report.html import render
from tf_wu_shard.tpu_compiler.table import table_of


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Adds the parser of `wu-shard demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="train small models, sharded and not, compile one for TPUs, and compare",
        description=(
            "Trains a language model and a classifier of digits on logical CPU devices, and the"
            " language model again on 4 workers, processes of this machine, and under TPUStrategy"
            " on emulated cores: unsharded, unsharded in another order of summation, and sharded."
            " Compiles a Transformer's step with the TPU compiler. Prints all side by side, writes"
            " OUT/report.html, and exits with 1 if runs disagree or nothing was sharded."
        ),
    )
    parser.add_argument(
        "--replicas", type=int, default=8, help="number of logical CPU devices (default: 8)"
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("build/demo"),
        help="where the report and the runs go (default: build/demo)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny models, few steps and 2 workers: does it run at all?",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the demo; returns 0, or 1 if runs disagree, nothing was sharded or a compile failed.

    Raises:
        OptionError: An argument is out of range.
        DemoError: A run failed.
    """
    if args.replicas < 2:
        raise OptionError(f"--replicas must be at least 2, not {args.replicas}: one has no others")
    if args.out.exists() and not args.out.is_dir():
        raise OptionError(f"--out {args.out} is a file; name a folder")
    begun = time.monotonic()
    compared, compiled = schedule.train_all(
        TITLES,
        Trainer(args.replicas, args.quick, args.out / "runs"),
        progress=terminal.ProgressBar(sys.stderr),
        quiet_progress=terminal.ProgressBar(sys.stderr, moves=False),
        beside=lambda: compilation.compile_step(args.quick, args.out / "compiled", terminal.say),
    )
    for one in compared:
        print(f"\n{terminal.summary(one)}\n", flush=True)
    if compiled.compared is not None:
        print(f"\n{table_of(compiled.compared)}\n", flush=True)
    elif compiled.missing:
        print(f"\nno step was compiled for TPUs: {compiled.missing}\n", flush=True)
    report = args.out / "report.html"
    report.write_text(render(page(compared, compiled)), encoding="utf-8")
    print(f"report: {report}   {time.monotonic() - begun:.0f} s")
    problems = [problem for one in compared for problem in one.problems]
    problems += compiled.problems
    for problem in problems:
        print(f"wu-shard demo: {problem}", file=sys.stderr)
    return 1 if problems else 0
