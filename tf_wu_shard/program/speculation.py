"""Which ops may run although the branch that they stand in is not taken.

They change nothing, cannot fail whatever numbers enter them, and cost no more than an update does.
A result that nobody takes then does no harm. What divides whole numbers fails where it divides by
zero, and what gives tensors another shape where they turn out to have other sizes than are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.dimensions import Dims
from tf_wu_shard.graph.op import parse_value
from tf_wu_shard.rules.registry import family_of

Shape = Dims | None

# What has a rule is arithmetic on elements, another name, or a sum. These make tensors of nothing.
_OTHERS = frozenset({"Const", "Fill", "Shape", "Size", "Rank", "Pack"})

# What looks a constant part up, and what tells all replicas a number of the first one (a counter
# that a branch of a TPU program sets). Where it is written out, it stands in no branch.
_PART = "StridedSlice"
_TOLD = "AllToAll"

_DIVISIONS = frozenset({"Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"})


class RunsInVainError(Exception):
    """Something must not run unless its branch is taken; says what and why."""


def check_speculable(nodes: Iterable[Any], shapes: Mapping[str, tuple[Shape, ...]]) -> None:
    """Checks that all of a function may run in vain.

    Args:
        nodes: Its NodeDefs, arguments being Placeholders; none calls another function.
        shapes: The static shapes of their results, by their names; None where not known.

    Raises:
        RunsInVainError: If it may not.
    """
    nodes = tuple(nodes)
    constants = {node.name: node for node in nodes if node.op == "Const"}
    for node in nodes:
        if node.op == "Placeholder":
            continue
        if family_of(node.op) is None and not _is_other(node, constants, shapes):
            raise RunsInVainError(f"{node.op} is not to run where its branch is not taken")
        if any(shape is None or None in shape for shape in shapes[node.name]):
            raise RunsInVainError(f"the shape of what {node.op} yields is not known when traced")
        if _may_fail(node, constants):
            raise RunsInVainError(f"{node.op} of whole numbers may fail where it is not to run")


def _is_other(
    node: Any, constants: Mapping[str, Any], shapes: Mapping[str, tuple[Shape, ...]]
) -> bool:
    """Whether an op that has no rule may run in vain."""
    if node.op == _PART:
        return all(parse_value(text).op in constants for text in node.input[1:4])
    if node.op == _TOLD:
        return len(shapes[node.name][0] or ()) <= 1
    return node.op in _OTHERS


def _may_fail(node: Any, constants: Mapping[str, Any]) -> bool:
    """Whether an op fails on some numbers."""
    if node.op not in (*_DIVISIONS, "Pow") or not tf.as_dtype(node.attr["T"].type).is_integer:
        return False
    second = constants.get(parse_value(node.input[1]).op)
    if second is None:
        return True
    known = tf.make_ndarray(second.attr["value"].tensor)
    return bool((known < 0).any() if node.op == "Pow" else (known == 0).any())
