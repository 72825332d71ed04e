"""The directive `command-options`: a subcommand's usage and options, from its own parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from tf_wu_shard.cli.main import COMMANDS, parser_of


class CommandOptions(SphinxDirective):
    """Lists what `wu-shard COMMAND --help` lists; its one argument is the command."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The description, the usage and a list of the options."""
        name = self.arguments[0]
        if name not in COMMANDS:
            raise ExtensionError(f"wu-shard has no command {name!r}; it has {', '.join(COMMANDS)}")
        parser = parser_of(name)
        # As wide as the help is on a terminal of 80 columns, whatever the terminal of the build.
        parser.formatter_class = _of_80_columns
        usage = parser.format_usage().removeprefix("usage: ")
        listed = nodes.definition_list("", *_items(parser))
        # An option begins with two hyphens, which are no dash.
        listed["support_smartquotes"] = False
        text = parser.description or f"{COMMANDS[name].capitalize()}."
        return [
            nodes.paragraph("", text),
            nodes.literal_block(usage, usage, language="text"),
            listed,
        ]


def _of_80_columns(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=78)


def _items(parser: argparse.ArgumentParser) -> Iterator[nodes.definition_list_item]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help in (None, argparse.SUPPRESS) or "--help" in action.option_strings:
            continue
        term = nodes.term("", "", nodes.literal("", _named(action, formatter)))
        text = nodes.paragraph("", formatter._expand_help(action))
        yield nodes.definition_list_item("", term, nodes.definition("", text))


def _named(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """The option and what follows it; argparse has no more than dots for what takes the rest."""
    if action.nargs != argparse.REMAINDER:
        return formatter._format_action_invocation(action)
    return " ".join([*action.option_strings, str(action.metavar), "..."])


def setup(app: Sphinx) -> dict[str, bool]:
    """Makes the directive known to Sphinx."""
    app.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": True}
