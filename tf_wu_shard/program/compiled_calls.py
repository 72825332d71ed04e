"""Calls of functions that XLA compiles, as `tf.function(jit_compile=True)` asks it to.

XLA rounds otherwise than TensorFlow's kernels do. So what is written out of such a call says so, as
long as it is in the graph, and is handed to XLA again in the end: what was sharded with the update
that it is of, what stays whole as it was. tf_keras' optimizers update each variable in such a call
where they see a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tf_wu_shard.graph.op import attribute_in
from tf_wu_shard.rules.compiled import CAN_COMPILE
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import is_plain_write

# The attribute of an op, or of a function, that XLA must compile.
MUST_COMPILE = "_XlaMustCompile"

# The attribute of what was written out of a call: the call's name.
_WRITTEN_OUT_OF = "_wu_shard_compiled_in"

# What needs no compiling, or says to XLA what follows from the rest.
_BESIDE = frozenset({"Const", "Identity", "NoOp", "Placeholder", "Reshape", READ})


def is_compiled(node: Any) -> bool:
    """Whether a call is of a function that XLA compiles."""
    return bool(attribute_in(node.attr, MUST_COMPILE).b)


def not_compiled_again(nodes: Iterable[Any]) -> str | None:
    """The type of the first op of a function that is not handed to XLA but in the whole function.

    Args:
        nodes: The NodeDefs of the function.

    Returns:
        The type; None where all of the function may be written out.
    """
    return next(
        (
            node.op
            for node in nodes
            if not (node.op in CAN_COMPILE or node.op in _BESIDE or is_plain_write(node.op))
        ),
        None,
    )


def mark(node: Any, call: str) -> None:
    """Notes on a NodeDef, which is changed, the call of a compiled function that it was in."""
    node.attr[_WRITTEN_OUT_OF].s = call.encode()


def mark_as_its_caller(node: Any, call: Any) -> None:
    """Notes on a NodeDef that is written out of a call which compiled call it was in, if any.

    Args:
        node: The NodeDef, which is changed; it may have been written out of another call before.
        call: The NodeDef of the call.
    """
    inner = compiled_in(node)
    if is_compiled(call):
        mark(node, call.name)
    elif inner:
        mark(node, f"{call.name}/{inner}")


def unmark(node: Any) -> None:
    """Takes the note away from a NodeDef: of the program that it is part of, all is compiled."""
    node.attr.pop(_WRITTEN_OUT_OF, None)


def compiled_in(node: Any) -> str:
    """The call of a compiled function that a NodeDef was written out of, by name, or ""."""
    attributes = node.attr
    return attributes[_WRITTEN_OUT_OF].s.decode() if _WRITTEN_OUT_OF in attributes else ""
