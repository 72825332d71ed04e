"""What a variable is given in a branch that is written out: chosen, or else what it held."""

from __future__ import annotations

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rules.variables import READ

_SELECTS = frozenset({"Select", "SelectV2"})


def is_constant(view: GraphView, value: Value) -> bool:
    """Whether a value is a constant, or a tensor filled with one."""
    op = view.ops[value.op]
    sources = [op] if op.type != "Fill" else [view.ops[v.op] for v in op.inputs]
    return all(source.type == "Const" for source in sources)


def unless_skipped(view: GraphView, value: Value, key: str) -> Value:
    """What a variable is given where it is not left alone.

    Args:
        view: The graph.
        value: What is written to the variable.
        key: The variable's key.
    """
    while (op := view.ops[value.op]).type in _SELECTS:
        given = [v for v in op.inputs[1:] if not _holds(view, v, key)]
        if len(given) != 1 or view.shape(op.inputs[0]) != ():
            break
        (value,) = given
    return value


def _holds(view: GraphView, value: Value, key: str) -> bool:
    """Whether a value is what a variable held, whichever branch is taken."""
    pending = [value]
    while pending:
        op = view.ops[pending.pop().op]
        ref = view.variables.get(op.inputs[0].op) if op.type == READ else None
        if op.type == "Identity" or op.type in _SELECTS:
            pending += op.inputs[op.type in _SELECTS :]
        elif ref is None or ref.key != key:
            return False
    return True
