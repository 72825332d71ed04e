"""Which ops may run although the branch that they stand in is not taken.

They change nothing, cannot fail whatever numbers enter them, and cost no more than an update does.
A result that nobody takes then does no harm. What divides whole numbers fails where it divides by
zero, and what gives tensors another shape where they turn out to have other sizes than are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import attribute_in, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import TOLD
from tf_wu_shard.program.row_lists import RowLists
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.registry import family_of
from tf_wu_shard.rules.writes import num_written

# What has a rule is arithmetic on elements, another name, or a sum. These make tensors of nothing.
_OTHERS = frozenset({"Const", "Fill", "Shape", "Size", "Rank", "Pack"})

# What looks a constant part up, and what gives all replicas a number of the first one (a counter
# that a branch of a TPU program sets). Where it is written out, it stands in no branch.
_PART = "StridedSlice"

_DIVISIONS = frozenset({"Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"})


class RunsInVainError(Exception):
    """Something must not run unless its branch is taken.

    Attributes:
        refusal: What and why.
    """

    def __init__(self, refusal: Refusal) -> None:
        """Takes what and why."""
        super().__init__(str(refusal))
        self.refusal = refusal


def check_ops(nodes: Iterable[Any], lists: RowLists) -> None:
    """Checks that all ops of a function are such that they may run in vain.

    Args:
        nodes: Its NodeDefs, arguments being Placeholders; none calls another function.
        lists: Which of them are made of lists of rows.

    Raises:
        RunsInVainError: If one is not.
    """
    nodes = tuple(nodes)
    constants = constants_of(nodes)
    for node in nodes:
        refusal = None if node.op == "Placeholder" else why_not(node, constants, lists)
        if refusal is not None:
            raise RunsInVainError(refusal)


def constants_of(nodes: Iterable[Any]) -> dict[str, Any]:
    """The constants among NodeDefs, by name."""
    return {node.name: node for node in nodes if node.op == "Const"}


def why_not(
    node: Any, constants: Mapping[str, Any], lists: RowLists | None = None
) -> Refusal | None:
    """Why an op must not run in vain; None where it may, as far as sizes are not concerned.

    Args:
        node: Its NodeDef.
        constants: The constants beside it, see `constants_of`.
        lists: Which ops are made of lists of rows.
    """
    if lists is not None and lists.must_not(node):
        return refusals.Branches.BRANCH_NOT_IN_VAIN.at(op_type=lists.meaning(node)[0])
    known = family_of(node.op) is not None or _is_other(node, constants)
    if not known and (lists is None or node.name not in lists.made):
        return refusals.Branches.BRANCH_NOT_IN_VAIN.at(op_type=node.op)
    if _may_fail(node, constants):
        return refusals.Branches.BRANCH_MAY_FAIL.at(op_type=node.op)
    return None


def unproved(
    view: GraphView, names: Collection[str], selections: Collection[str]
) -> dict[str, Refusal]:
    """The ops that would run in vain, and may fail as nothing proves the sizes of what they take.

    Args:
        view: The graph that they stand in.
        names: Names of those that would.
        selections: Names of those that select what one of several branches yields.

    Returns:
        Why each of these must not, by name.
    """
    found: dict[str, Refusal] = {}
    for op in (view.ops[name] for name in names):
        values = view.results(op.name) or op.inputs[num_written(op.type) :]
        shapes = [view.shape(value) for value in values]
        if None in shapes:
            found[op.name] = refusals.Branches.BRANCH_SHAPE_UNKNOWN.at(op_type=op.type)
        elif op.type == TOLD and len(shapes[0] or ()) > 1:
            found[op.name] = refusals.Branches.BRANCH_NOT_IN_VAIN.at(op_type=op.type)
    for op in (view.ops[name] for name in selections):
        if view.shape(op.inputs[1]) != view.shape(op.inputs[2]):
            found.setdefault(op.name, refusals.Branches.BRANCH_YIELDS_DIFFERENT_SHAPES.at())
    return found


def _is_other(node: Any, constants: Mapping[str, Any]) -> bool:
    """Whether an op that has no rule may run in vain."""
    if node.op == _PART:
        return all(parse_value(text).op in constants for text in node.input[1:4])
    return node.op in (*_OTHERS, TOLD)


def _may_fail(node: Any, constants: Mapping[str, Any]) -> bool:
    """Whether an op fails on some numbers."""
    if (
        node.op not in (*_DIVISIONS, "Pow")
        or not tf.as_dtype(attribute_in(node.attr, "T").type).is_integer
    ):
        return False
    second = constants.get(parse_value(node.input[1]).op)
    if second is None:
        return True
    known = tf.make_ndarray(attribute_in(second.attr, "value").tensor)
    return bool((known < 0).any() if node.op == "Pow" else (known == 0).any())
