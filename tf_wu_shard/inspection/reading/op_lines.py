"""Which line of a program made an op of a function whose calls and branches were written out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tf_wu_shard.graph.calls import BRANCHES, callee_names, is_call
from tf_wu_shard.model_files.types import Model
from tf_wu_shard.program.branch_choice import BRANCH


def op_lines(model: Model, function: str, ops: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The source lines of some ops, as far as the files hold them.

    Args:
        model: The model.
        function: Name of the function that the ops are in, after a slash where it is nested in
            another; no function of the model for its graph.
        ops: Their names, in the function with its calls and branches written out.

    Returns:
        Each op of which a line is known, with the line.
    """
    lines = model.source_lines
    if lines is None:
        return ()
    innermost = function.rpartition("/")[2]
    within = innermost if innermost in model.functions else ""
    found = []
    for op in dict.fromkeys(ops):
        line = lines.line(op, within) or _in_called(model, within, op)
        if op and line:
            found.append((op, line))
    return tuple(found)


def _in_called(model: Model, function: str, op: str) -> str:
    """The line of an op that a call was written out to: it has the call's name before its own."""
    lines = model.source_lines
    start = 0
    while lines is not None and function and (cut := op.find("/", start)) >= 0:
        called = (
            _called(node, op[cut + 1 :])
            for node in model.functions[function].node_def
            if node.name == op[:cut] and is_call(node.op)
        )
        name, rest = next((c for c in called if c[0] in model.functions), ("", ""))
        if name:
            # What is left of the name is one of an op in there, maybe written out in its turn.
            function, op, start = name, rest, 0
            if line := lines.line(op, function):
                return line
        else:
            start = cut + 1
    return ""


def _called(node: Any, rest: str) -> tuple[str, str]:
    """The function that a node was written out to, and the name of an op in it; "" of none.

    Args:
        node: The NodeDef of what calls functions.
        rest: What follows the node's name in the name of an op.
    """
    names = callee_names(node)
    if node.op in BRANCHES:
        branch, _, rest = rest.partition("/")
        number = branch.removeprefix(BRANCH)
        known = branch.startswith(BRANCH) and number.isdecimal() and int(number) < len(names)
        return (names[int(number)], rest) if known else ("", "")
    return (names[0], rest) if len(names) == 1 else ("", "")
