"""`wu-shard run`: an unmodified training script with the flag on, and without a TPU if need be.

Answers: was anything sharded in that script, and what. TensorFlow is left for the script to
import, so that what it sets up before (environment variables, devices) counts as ever; the flag
goes on the moment it is imported, and so do the replicas that stand in for a TPU's. Functions that
are traced after the script's main thread ended, and processes that it spawns, are not covered. With
`--workers` the script runs in every worker of a local cluster, in each as it would run alone.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from tf_wu_shard import config, deferred
from tf_wu_shard.cli import local_workers, program
from tf_wu_shard.cli.worker_ends import joined_reports, verdict_lines
from tf_wu_shard.errors import OptionError
from tf_wu_shard.topology import parse_topology

if TYPE_CHECKING:
    from tf_wu_shard.report.report import Report

# As many functions as one paragraph bears; the report file has them all.
_MAX_LISTED = 3


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
        help="a step that updates less than N elements in all is left alone",
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
        "--deterministic", action="store_true", help="sum gradients in the order of the replicas"
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
    workers = _workers(args)
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
    options = _options(args)
    module, (target, *arguments) = _target(args)
    report = _report_path(args)
    _emulate(args)
    if options is not None:
        deferred.when_imported("tensorflow", lambda: _turn_on(options))
    process = os.getpid()

    def finish() -> int:
        # A forked child of the script comes this way too; the script's own process reports.
        return _finish(options, report, tell) if os.getpid() == process else 0

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
    options = _options(args)
    _target(args)
    report = _report_path(args)
    own = {"parser", "command", "workers", "report"}
    given = {name: value for name, value in vars(args).items() if name not in own}
    ended = local_workers.run_workers(workers, given, reports=report is not None)
    unwritten = 0 if report is None else _write(report, joined_reports(ended.workers))
    if options is not None:
        for line in verdict_lines(ended.workers):
            _say(line)
    return ended.status or unwritten


def _workers(args: argparse.Namespace) -> int | None:
    """How many workers were asked for; None for this process alone."""
    parser: argparse.ArgumentParser = args.parser
    workers: int | None = getattr(args, "workers", None)
    if workers is None:
        return None
    if workers < 1:
        parser.error(f"--workers needs at least 1 worker, not {workers}")
    if hasattr(args, "emulate_tpu") or hasattr(args, "topology"):
        parser.error(
            "--workers is for MultiWorkerMirroredStrategy, --emulate-tpu and --topology for a TPU"
            " of one process: leave out the one or the other"
        )
    if os.environ.get("TF_CONFIG"):
        parser.error(
            "TF_CONFIG is set, so this process is part of a cluster already: leave out --workers,"
            " or unset TF_CONFIG"
        )
    if os.name != "posix":
        parser.error(
            "--workers needs the process groups of a POSIX system: start each worker yourself,"
            " with its own TF_CONFIG"
        )
    return workers


def _say(text: str) -> None:
    print(f"wu-shard: {text}.", file=sys.stderr)


def _emulate(args: argparse.Namespace) -> None:
    """Arranges for the TPU that the script will find, if it was asked for."""
    parser: argparse.ArgumentParser = args.parser
    replicas: int | None = getattr(args, "emulate_tpu", None)
    topology: str | None = getattr(args, "topology", None)
    if replicas is None:
        if topology is not None:
            parser.error("--topology goes with --emulate-tpu N")
        return
    if replicas < 1:
        parser.error(f"--emulate-tpu needs at least 1 replica, not {replicas}")
    if topology is not None:
        try:
            devices = parse_topology(topology).num_devices
        except OptionError as error:
            parser.error(str(error))
        if devices != replicas:
            parser.error(f"topology {topology!r} has {devices} devices, not {replicas}")
    deferred.when_imported("tensorflow", lambda: _stand_in_for_tpus(replicas, topology))


def _stand_in_for_tpus(replicas: int, topology: str | None) -> None:
    from tf_wu_shard.emulation.strategy import emulate_tpus

    emulate_tpus(replicas, topology)


def _options(args: argparse.Namespace) -> config.ShardingOptions | None:
    """What to shard with, or None for not at all."""
    parser: argparse.ArgumentParser = args.parser
    fields = (
        "min_elements",
        "min_step_elements",
        "bucket_bytes",
        "on_refusal",
        "min_sharded",
        "deterministic",
    )
    given = {field: getattr(args, field) for field in fields if hasattr(args, field)}
    try:
        options = config.ShardingOptions(**given)
    except OptionError as error:
        parser.error(str(error))
    # Both halves of a comparison may go by one command line, so what it sets is no error here.
    return None if hasattr(args, "unsharded") else options


def _target(args: argparse.Namespace) -> tuple[bool, list[str]]:
    module: list[str] | None = getattr(args, "module", None)
    if module is not None:
        if not module:
            args.parser.error("-m needs the name of a module")
        return True, module
    script: list[str] = [*args.script]
    if script[:1] == ["--"]:
        script = script[1:]
    if not script:
        args.parser.error("give the script to run, or -m and a module")
    if not os.path.isfile(script[0]):
        found = "a folder" if os.path.isdir(script[0]) else "no such file"
        args.parser.error(f"cannot run {script[0]!r}: {found}")
    return False, script


def _report_path(args: argparse.Namespace) -> pathlib.Path | None:
    given: pathlib.Path | None = getattr(args, "report", None)
    if given is None:
        return None
    # The script may change the working directory. Better to fail now than after a long training.
    path = given.absolute()
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        args.parser.error(
            f"cannot write the report {str(given)!r}: its folder is missing or closed"
        )
    return path


def _turn_on(options: config.ShardingOptions) -> None:
    import tensorflow as tf

    config.install_flag()
    tf.config.optimizer.set_experimental_options({config.FLAG: options})


def _finish(
    options: config.ShardingOptions | None, path: pathlib.Path | None, tell: Callable[[str], None]
) -> int:
    """Writes the reports and tells the verdict; returns 1 if that makes a good run a failed one."""
    reports = _reports()
    status = 0
    if path is not None:
        shown = reports if options is not None or reports else (_not_asked(),)
        status = _write(path, [json.loads(report.to_json()) for report in shown])
    if options is None:
        return status
    sharded = [report for report in reports if report.verdict != "nothing sharded"]
    if sharded:
        tell(_verdicts(sharded))
    else:
        kind = "error" if options.on_refusal == "raise" else "warning"
        tell(f"{kind}: nothing was sharded: {_why_nothing(reports)}")
        status = 1 if options.on_refusal == "raise" else status
    return status


def _write(path: pathlib.Path, reports: list[dict[str, Any]]) -> int:
    """Writes the report file; returns 1 if that cannot be done."""
    try:
        path.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"wu-shard run: error: cannot write the report: {error}", file=sys.stderr)
        return 1
    return 0


def _not_asked() -> Report:
    """The report of a script that ran unsharded."""
    from tf_wu_shard import refusals
    from tf_wu_shard.report.published import nothing_sharded

    return nothing_sharded("all functions", refusals.Topology.NOT_ASKED_FOR.at())


def _reports() -> tuple[Report, ...]:
    if "tensorflow" not in sys.modules:
        return ()
    import tf_wu_shard

    reports: tuple[Report, ...] = tf_wu_shard.reports()
    return reports


def _why_nothing(reports: tuple[Report, ...]) -> str:
    if "tensorflow" not in sys.modules:
        return "the script never imported TensorFlow"
    if reports:
        return _verdicts(reports)
    if config.current_options() is None:
        return f"the script turned {config.FLAG} off"
    return "no function that reduces gradients over replicas was traced"


def _verdicts(reports: Sequence[Report]) -> str:
    from tf_wu_shard.report.report import verdict_line

    return _listed([verdict_line(report) for report in reports])


def _listed(parts: list[str]) -> str:
    unique = list(dict.fromkeys(parts))
    more = len(unique) - _MAX_LISTED
    return "; ".join(unique[:_MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")
