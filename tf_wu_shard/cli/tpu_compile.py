"""`wu-shard tpu-compile`: the TPU compiler's word on a sharded step, with no TPU.

Answers: does the step fit a device, which collectives are left of those asked for, how long the
compiler thinks the rest takes; sharded and not, side by side. Nothing is run, so nothing here is a
measurement.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

from tf_wu_shard.bench.optimizers import NAMES
from tf_wu_shard.errors import OptionError
from tf_wu_shard.tpu_compiler.comparison import compare
from tf_wu_shard.tpu_compiler.settings import DEFAULT_BATCH, Settings
from tf_wu_shard.tpu_compiler.table import table_of

_DEFAULT_MODEL = "transformer_base"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the parser of `wu-shard tpu-compile`.

    Args:
        subparsers: What `ArgumentParser.add_subparsers` returned.
    """
    parser = subparsers.add_parser(
        "tpu-compile",
        help="compile a train step with the TPU compiler, sharded and not; needs no TPU",
        description="Traces a train step as TPUStrategy does and compiles it ahead of time with"
        " libtpu, sharded and not. Nothing is run. Takes some minutes.",
        usage="%(prog)s [OPTIONS] [--script SCRIPT [ARGS ...]]",
        allow_abbrev=False,
    )
    parser.add_argument("--model", help=f"a name in tf_wu_shard.models (default: {_DEFAULT_MODEL})")
    parser.add_argument(
        "--topology", default="v5e:4x4", help="the TPU slice (default: %(default)s)"
    )
    parser.add_argument(
        "--optimizer",
        choices=NAMES,
        default="adam",
        help="the model's (default: %(default)s)",
    )
    parser.add_argument(
        "--batch",
        type=int,
        help="examples a replica and step; of a script, where it leaves that open"
        f" (default: {DEFAULT_BATCH}, of a script none)",
    )
    parser.add_argument(
        "--gather-dtype", metavar="DTYPE", help="what updated weights travel in, such as bfloat16"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures here")
    parser.add_argument(
        "--dump-hlo",
        type=pathlib.Path,
        metavar="DIR",
        help="write replicated.hlo and sharded.hlo here, the optimized programs",
    )
    parser.add_argument(
        "--script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="run a training script for a TPU until it traces a train step; everything after it is"
        " the script's",
    )


def run(args: argparse.Namespace) -> int:
    """Compiles both steps, prints the table and writes the files.

    Args:
        args: The parsed arguments.

    Returns:
        0; whatever could not be compiled raises.

    Raises:
        OptionError: An argument names nothing known, is out of range, or cannot be written to.
        WuShardError: A step could not be traced or compiled, or the compiler is not installed.
    """
    settings = _settings(args)
    _check_writable(args)
    with tempfile.TemporaryDirectory(prefix="wu_shard_") as folder:
        comparison = compare(settings, pathlib.Path(folder), _say)
        print(table_of(comparison))
        if args.json is not None:
            args.json.write_text(comparison.to_json(), encoding="utf-8")
        if args.dump_hlo is not None:
            for file in pathlib.Path(folder).glob("*.hlo"):
                (args.dump_hlo / file.name).write_bytes(file.read_bytes())
    return 0


def _settings(args: argparse.Namespace) -> Settings:
    script: list[str] | None = args.script
    if script is not None and not script:
        raise OptionError("--script needs the script to run")
    if script is not None and not pathlib.Path(script[0]).is_file():
        raise OptionError(f"cannot run the script: no such file {script[0]!r}")
    model = args.model
    if model is None and script is None:
        model = _DEFAULT_MODEL
    return Settings(
        topology=args.topology,
        model=model,
        optimizer=args.optimizer,
        batch=args.batch,
        script=None if script is None else script[0],
        arguments=() if script is None else tuple(script[1:]),
        gather_dtype=args.gather_dtype,
    )


def _check_writable(args: argparse.Namespace) -> None:
    """Minutes of compiling must not end in a file that cannot be written."""
    try:
        if args.json is not None:
            args.json.open("a", encoding="utf-8").close()
        if args.dump_hlo is not None:
            args.dump_hlo.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot write {error.filename}: {error.strerror}") from error


def _say(line: str) -> None:
    print(f"wu-shard tpu-compile: {line}", file=sys.stderr, flush=True)
