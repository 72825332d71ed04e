"""`wu-shard inspect`: what of a model, or of a script, would be sharded, and why not the rest.

Answers: which functions train, what their updates are, the plan for a number of replicas, what it
saves. Files of a model are parsed and never executed, a script is executed up to its first train
step; nothing is written but `--output`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Sequence

from tf_wu_shard.cli.script_process import inspect_script
from tf_wu_shard.cli.standard_output import show
from tf_wu_shard.errors import OptionError
from tf_wu_shard.estimation.optimizer_step import optimizer_of
from tf_wu_shard.estimation.saved_weights import inspect_with_optimizer
from tf_wu_shard.inspection.answers.answer import Inspection
from tf_wu_shard.inspection.formats.json_text import as_json
from tf_wu_shard.inspection.formats.markdown import as_markdown
from tf_wu_shard.inspection.formats.page import as_html
from tf_wu_shard.inspection.formats.text import as_all_lines, as_lines, printable
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import files_of, read_model
from tf_wu_shard.topology import parse_topology

FORMATS = {"text": as_lines, "json": as_json, "html": as_html, "markdown": as_markdown}

# More replicas than any machine has; a plan names each.
_MOST_REPLICAS = 4096


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the parser of `wu-shard inspect`.

    Args:
        subparsers: What `ArgumentParser.add_subparsers` returned.
    """
    parser = subparsers.add_parser(
        "inspect",
        help="say what of a saved model, or a script, would be sharded, and why not the rest",
        description="Reads a model and says which of its functions train, what their updates are"
        " and what would be sharded. The model is parsed, never executed. With --script, the same"
        " of a script, which is run up to its first train step.",
        usage="%(prog)s [OPTIONS] (PATH | --script SCRIPT [-- ARGS ...])",
        allow_abbrev=False,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="the directory of a SavedModel; a GraphDef, FunctionDefLibrary or MetaGraphDef (.pb,"
        " .pbtxt); the .meta file of a checkpoint",
    )
    parser.add_argument(
        "--script",
        metavar="SCRIPT",
        help="run this script, with the arguments after --, in a process of its own up to its first"
        " train step, which does not run, and look at that step",
    )
    parser.add_argument(
        "--optimizer",
        metavar="NAME",
        help="say what it would be if this Keras optimizer, with its defaults, trained the model's"
        " trainable variables; for models without a train step too",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="plan for so many replicas (default: those that a step was traced for; 8 for one"
        " traced on one device)",
    )
    parser.add_argument("--topology", metavar="NAME", help="plan for a TPU slice, such as v5e:4x4")
    parser.add_argument("--function", metavar="NAME", help="look at this function only")
    parser.add_argument(
        "--diff",
        action="store_true",
        help="show the graph of each step before and after the rewrite; nothing of it is run",
    )
    parser.add_argument(
        "--format",
        choices=tuple(FORMATS),
        default="text",
        help="how to answer (default: %(default)s)",
    )
    parser.add_argument(
        "--output", type=pathlib.Path, metavar="FILE", help="write the answer here instead"
    )


def run(args: argparse.Namespace) -> int:
    """Reads the model, or runs the script, and prints the answer.

    Args:
        args: The parsed arguments.

    Returns:
        0; 1 where the model could only be read in part.

    Raises:
        OptionError: An argument names nothing known, is out of range, or cannot be written to.
        ModelFileError: There is no model that can be read.
        ScriptError: The script failed before it trained.
    """
    question = _question(args)
    if args.output is not None:
        _spare_the_model([args.script] if args.script is not None else args.paths, args.output)
    inspection = _of_model(args, question) if args.script is None else _of_script(args, question)
    if args.output is None:
        # A page says itself that it is UTF-8.
        show(FORMATS[args.format](inspection), "utf-8" if args.format == "html" else None)
    else:
        shown = as_all_lines if args.format == "text" else FORMATS[args.format]
        _write(args.output, shown(inspection))
    if not inspection.notes:
        return 0
    more = f" (and {len(inspection.notes) - 1} more)" if len(inspection.notes) > 1 else ""
    said = printable(f"only partly read: {inspection.notes[0]}{more}")
    print(f"wu-shard inspect: {said}", file=sys.stderr)
    return 1


def _of_model(args: argparse.Namespace, question: Question) -> Inspection:
    if not args.paths:
        raise OptionError("give the PATH of a model, or a --script")
    if len(args.paths) > 1:
        raise OptionError(f"one model at a time: {args.paths[1]!r} is one too many")
    path = pathlib.Path(args.paths[0])
    if args.optimizer is None:
        inspection = inspect(read_model(path), question)
    else:
        if args.function is not None:
            raise OptionError("--optimizer looks at no function of the model: leave out --function")
        if args.diff:
            raise OptionError("--optimizer looks at no graph of the model: leave out --diff")
        # Before a large model is read.
        optimizer = optimizer_of(args.optimizer)
        inspection = inspect_with_optimizer(read_model(path), optimizer, question)
    return dataclasses.replace(inspection, name=path.resolve().name)


def _of_script(args: argparse.Namespace, question: Question) -> Inspection:
    script: str = args.script
    if args.optimizer is not None:
        raise OptionError("--script looks at the optimizer that it has: leave out --optimizer")
    if not os.path.isfile(script):
        other = "a folder" if os.path.isdir(script) else "no ordinary file"
        found = other if os.path.exists(script) else "no such file"
        raise OptionError(f"cannot run {script!r}: {found}")
    inspection = inspect_script(script, args.paths, question)
    return dataclasses.replace(inspection, name=os.path.basename(script))


def _question(args: argparse.Namespace) -> Question:
    topology = None if args.topology is None else parse_topology(args.topology)
    if args.replicas is not None and not 2 <= args.replicas <= _MOST_REPLICAS:
        raise OptionError(f"--replicas must be from 2 to {_MOST_REPLICAS}, not {args.replicas}")
    if topology is not None and args.replicas not in (None, topology.num_devices):
        raise OptionError(
            f"{topology.name} has {topology.num_devices} replicas, not {args.replicas}: give"
            " --replicas or --topology"
        )
    return Question(args.replicas, topology, args.function, diff=args.diff)


def _write(path: pathlib.Path, answer: str) -> None:
    """Writes a file whole or not at all; what is no file, such as a pipe, as it comes."""
    try:
        target = path.resolve()
        if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
            target.write_text(answer + "\n", encoding="utf-8")
            return
        with tempfile.TemporaryDirectory(prefix=".wu-shard-", dir=target.parent) as folder:
            whole = pathlib.Path(folder, target.name)
            whole.write_text(answer + "\n", encoding="utf-8")
            if target.exists():
                shutil.copymode(target, whole)
            whole.replace(target)
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}") from error


def _spare_the_model(paths: Sequence[str], output: pathlib.Path) -> None:
    """Keeps the answer from being written over what it is about.

    Raises:
        OptionError: The output is a file that would be read.
    """
    read = (file for path in paths[:1] for file in files_of(pathlib.Path(path)))
    if os.path.isfile(output) and any(os.path.exists(r) and output.samefile(r) for r in read):
        raise OptionError(f"cannot write {output}: it is a file of the model")
