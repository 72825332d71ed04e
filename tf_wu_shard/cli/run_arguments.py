"""What the arguments of `wu-shard run` ask for; one that makes no sense ends the command.

Each function asks one thing of the parsed arguments. Where they contradict each other or name what
is not there, the parser says so and exits with 2, before the script runs.
"""

from __future__ import annotations

import argparse
import os
import pathlib

from tf_wu_shard import config
from tf_wu_shard.errors import OptionError
from tf_wu_shard.topology import parse_topology


def workers(args: argparse.Namespace) -> int | None:
    """How many workers were asked for; None for this process alone."""
    parser: argparse.ArgumentParser = args.parser
    count: int | None = getattr(args, "workers", None)
    if count is None:
        return None
    if count < 1:
        parser.error(f"--workers needs at least 1 worker, not {count}")
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
    return count


def emulated(args: argparse.Namespace) -> tuple[int, str | None] | None:
    """How many replicas are to stand in for a TPU's, and the topology that they pretend to be.

    Args:
        args: The parsed arguments.

    Returns:
        None where no TPU is stood in for.
    """
    parser: argparse.ArgumentParser = args.parser
    replicas: int | None = getattr(args, "emulate_tpu", None)
    topology: str | None = getattr(args, "topology", None)
    if replicas is None:
        if topology is not None:
            parser.error("--topology goes with --emulate-tpu N")
        return None
    if replicas < 1:
        parser.error(f"--emulate-tpu needs at least 1 replica, not {replicas}")
    if topology is not None:
        try:
            devices = parse_topology(topology).num_devices
        except OptionError as error:
            parser.error(str(error))
        if devices != replicas:
            parser.error(f"topology {topology!r} has {devices} devices, not {replicas}")
    return replicas, topology


def options(args: argparse.Namespace) -> config.ShardingOptions | None:
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
        asked = config.ShardingOptions(**given)
    except OptionError as error:
        parser.error(str(error))
    # Both halves of a comparison may go by one command line, so what it sets is no error here.
    return None if hasattr(args, "unsharded") else asked


def target(args: argparse.Namespace) -> tuple[bool, list[str]]:
    """Whether it is a module that runs, and its name or the script's file, with its arguments."""
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


def report_path(args: argparse.Namespace) -> pathlib.Path | None:
    """Where to write the reports, absolute; None for nowhere."""
    given: pathlib.Path | None = getattr(args, "report", None)
    if given is None:
        return None
    # The script may change the working directory. Better to fail now than after a long training.
    path = given.absolute()
    why = None
    if path.is_dir():
        why = "it is a folder; name a file in it"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "its folder is missing or closed"
    if why is not None:
        args.parser.error(f"cannot write the report {str(given)!r}: {why}")
    return path
