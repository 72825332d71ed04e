"""`wu-shard run`: an unmodified training script with the flag on, and without a TPU if need be.

Answers: was anything sharded in that script, and what. TensorFlow is left for the script to
import, so that what it sets up before (environment variables, devices) counts as ever; the flag
goes on the moment it is imported, and so do the replicas that stand in for a TPU's. Functions that
are traced after the script's main thread ended, and processes that it spawns, are not covered. With
`--workers` the script runs in every worker of a local cluster, in each as it would run alone.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Callable
from typing import get_args

from tf_wu_shard import config, deferred
from tf_wu_shard.cli import local_workers, program, run_arguments, verdict
from tf_wu_shard.cli.worker_ends import joined_reports, verdict_lines


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the parser of `wu-shard run`.

    Args:
        subparsers: What `ArgumentParser.add_subparsers` returned.
    """
    parser = subparsers.add_parser(
        "run",
        help="run an unmodified training script with weight-update sharding on",
        usage="%(prog)s [OPTIONS] (SCRIPT | -m MODULE) [ARGS ...]",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--min-elements", type=int, metavar="N", help="variables below N elements stay replicated"
    )
    parser.add_argument(
        "--min-step-elements",
        type=int,
        metavar="N",
        help="a step that could shard less than N elements in all is left alone",
    )
    parser.add_argument(
        "--bucket-bytes", type=int, metavar="BYTES", help="size of small variables' buckets"
    )
    parser.add_argument(
        "--on-refusal",
        choices=get_args(config.OnRefusal),
        help="what to do when nothing can be sharded (default: warn)",
    )
    parser.add_argument(
        "--min-sharded",
        type=float,
        metavar="SHARE",
        help="below this share, from 0 to 1, of elements or slots, refuse what is sharded too",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="changes nothing yet: CPUs sum gradients in the order of the replicas anyway",
    )
    parser.add_argument(
        "--emulate-tpu",
        type=int,
        metavar="N",
        help="run a TPU script on this machine: N logical CPU devices stand in for a TPU's cores",
    )
    parser.add_argument(
        "--topology",
        metavar="NAME",
        help="with --emulate-tpu, the slice to pretend to be, such as v5e:2x4 (default: a ring)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="run the script in N processes on this machine, the workers of one cluster for"
        " MultiWorkerMirroredStrategy; each has this environment as it is, thread counts too",
    )
    parser.add_argument(
        "--unsharded",
        action="store_true",
        help="leave weight-update sharding off, whatever the other options set; the report says so",
    )
    parser.add_argument(
        "--report", type=pathlib.Path, metavar="FILE", help="write all reports as JSON at the end"
    )
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module instead of a script; everything after it is the module's",
    )
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the script and its arguments"
    )
    parser.set_defaults(parser=parser)


def run(args: argparse.Namespace) -> int:
    """Runs the script to its end and says what was sharded.

    Args:
        args: The parsed arguments.

    Returns:
        The exit status of a script that ended well: 0, or 1 if nothing was sharded with
        `--on-refusal raise` or the report could not be written. With `--workers` that of the
        first worker that failed, if one did.

    Raises:
        BaseException: Whatever ended the script otherwise, for the interpreter to show.
    """
    workers = run_arguments.workers(args)
    return run_here(args, _say) if workers is None else _run_in_workers(workers, args)


def run_here(args: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """Runs the script to its end in this process and tells what was sharded.

    Args:
        args: The parsed arguments; `--workers` is not looked at.
        tell: What to call with the verdict when the script has ended, if sharding was asked for.

    Returns:
        0 or 1, as `run` does for one process.

    Raises:
        BaseException: Whatever ended the script otherwise, for the interpreter to show.
    """
    options = run_arguments.options(args)
    module, (target, *arguments) = run_arguments.target(args)
    report = run_arguments.report_path(args)
    emulated = run_arguments.emulated(args)
    if emulated is not None:
        deferred.when_imported("tensorflow", lambda: _stand_in_for_tpus(*emulated))
    if options is not None:
        deferred.when_imported("tensorflow", lambda: _turn_on(options))
    process = os.getpid()

    def finish() -> int:
        # A forked child of the script comes this way too; the script's own process reports.
        return verdict.finish(options, report, tell) if os.getpid() == process else 0

    try:
        if module:
            program.run_module(target, arguments)
        else:
            program.run_script(target, arguments)
    except SystemExit as stop:
        if stop.code not in (None, 0):
            finish()
            raise
    except BaseException:
        finish()
        raise
    return finish()


def _run_in_workers(workers: int, args: argparse.Namespace) -> int:
    """Runs the script in a local cluster and says what its workers say."""
    # What is wrong with the command line is told once, not by every worker.
    options = run_arguments.options(args)
    run_arguments.target(args)
    report = run_arguments.report_path(args)
    own = {"parser", "command", "workers", "report"}
    given = {name: value for name, value in vars(args).items() if name not in own}
    ended = local_workers.run_workers(workers, given, reports=report is not None)
    unwritten = 0 if report is None else verdict.write(report, joined_reports(ended.workers))
    if options is not None:
        for line in verdict_lines(ended.workers):
            _say(line)
    return ended.status or unwritten


def _say(text: str) -> None:
    print(f"wu-shard: {text}.", file=sys.stderr)


def _stand_in_for_tpus(replicas: int, topology: str | None) -> None:
    from tf_wu_shard.emulation.strategy import emulate_tpus

    emulate_tpus(replicas, topology)


def _turn_on(options: config.ShardingOptions) -> None:
    import tensorflow as tf

    config.install_flag()
    tf.config.optimizer.set_experimental_options({config.FLAG: options})
