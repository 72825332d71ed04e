"""The `wu-shard` command: which subcommands there are, and the way into each.

Answers: `wu-shard --help`, one line for a wrong usage, and the exit status. A subcommand's module
is imported when it is asked for, so that help comes at once. It does not promise that the
package's own import is light.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from tf_wu_shard.errors import OptionError, WuShardError

COMMANDS = {
    "run": "run an unmodified training script with weight-update sharding on",
    "demo": "train two small models, sharded and not, and compare",
    "bench": "measure time and memory of a sharded step against an unsharded one",
    "inspect": "say what of a saved model, or a script, would be sharded, and why not the rest",
    "tpu-compile": "compile a train step with the TPU compiler, sharded and not; needs no TPU",
}


class _Command(Protocol):
    """What a module of a subcommand offers."""

    def add_parser(self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> object:
        """Adds the subcommand's own parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Does the work; returns the exit status."""


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line; the usage is one `--help` away."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: The arguments after the command's name; those of the process when None.

    Returns:
        The exit status: 0 when all is well, 1 when the work failed, 2 for a wrong usage.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        # A subcommand's import may be TensorFlow's first.
        command = None if chosen is None else _command(chosen)
        parser, _ = _parsers(chosen)
        args = parser.parse_args(arguments)
        # The parser knows no option of its own that could stand before the command, so from here
        # on the first argument was one.
        assert command is not None
        return command.run(args)
    except WuShardError as error:
        if chosen == "run":
            # The script's own error, to be shown as the interpreter shows it.
            raise
        print(f"wu-shard {chosen}: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionError) else 1


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one subcommand, as the documentation lists it.

    Args:
        name: One of `COMMANDS`.
    """
    _, subparsers = _parsers(name)
    found: argparse.ArgumentParser = subparsers.choices[name]
    return found


def _command(name: str) -> _Command:
    return cast(_Command, importlib.import_module(f"tf_wu_shard.cli.{name.replace('-', '_')}"))


def _parsers(
    chosen: str | None,
) -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[argparse.ArgumentParser]]:
    """The command's parser and its subparsers; only the chosen subcommand's has its options."""
    parser: argparse.ArgumentParser = _OneLineParser(
        prog="wu-shard", description="Weight-update sharding for TensorFlow."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if name == chosen:
            _command(name).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser, subparsers


if __name__ == "__main__":
    sys.exit(main())
