"""Which line of a program made an op of a function whose calls were written out."""

from __future__ import annotations

from collections.abc import Iterable

from tf_wu_shard.model_files.types import Model


def op_lines(model: Model, function: str, ops: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The source lines of some ops, as far as the files tell.

    Args:
        model: The model.
        function: Name of the function that the ops are in; no function of the model for its graph.
        ops: Their names, in the function with its calls written out.

    Returns:
        Each op of which a line is known, with the line.
    """
    lines = model.source_lines
    if lines is None:
        return ()
    within = function if function in model.functions else ""
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
        callees = [
            node.attr["f"].func.name
            for node in model.functions[function].node_def
            if node.name == op[:cut] and "f" in node.attr
        ]
        if callees and callees[0] in model.functions:
            # What is left of the name is one of an op in there, maybe written out in its turn.
            function, op, start = callees[0], op[cut + 1 :], 0
            if line := lines.line(op, function):
                return line
        else:
            start = cut + 1
    return ""
