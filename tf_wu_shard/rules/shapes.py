"""Ops that give a tensor another name or another shape of the same elements.

A cut is defined on the row-major elements, which these ops keep, so nothing is emitted.
`IdentityN` passes each of its operands on by number: output k is operand k. `BroadcastTo` is one of
them where it adds leading ones only.

What is to be proved of each: its result has the elements of its operand, in their row-major order.

Of a table cut at rows, each row may be given another shape; a shard then reshapes its own rows.
"""

from __future__ import annotations

import math

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import INT64
from tf_wu_shard.placement import Placement, Replicated, RowPlacement, Sharded, What
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.operation import LocalOp, Operation, OwnRows
from tf_wu_shard.rules.registry import Family, Operands, Outcome, Rule


def relabelled(op: Operation, operands: tuple[Placement, ...]) -> Outcome:
    """The rule of ops that only rename or reshape their first operand."""
    if op.shape is None:
        return refusals.Rules.RESULT_SHAPE_UNKNOWN.at(op.name)
    if any(isinstance(operand, Sharded) for operand in operands[1:]):
        return refusals.Rules.SHARDED_SHAPE.at(op.name)
    if math.prod(operands[0].shape) != math.prod(op.shape):
        return refusals.Rules.RESIZES.at(op.name, result=op.shape, shape=operands[0].shape)
    if isinstance(operands[0], Replicated):
        return (Replicated(op.shape),)
    return (Sharded(op.shape),)


def _each_row(op: Operation, operands: Operands) -> Outcome:
    first = operands[0]
    if not isinstance(first, RowPlacement) or first.what is not What.TABLE:
        return registry.no_rule_on_rows(op)
    if op.shape is None:
        return refusals.Updates.OPERAND_SHAPE_UNKNOWN.at(op.name)
    if op.shape[:1] != first.shape[:1] or math.prod(op.shape) != math.prod(first.shape):
        return refusals.Rows.RESIZES_ROWS.at(op.name, shape=op.shape)
    return (RowPlacement(What.TABLE, shape=op.shape),)


def _own_rows(op: Operation, operands: Operands) -> LocalOp | None:
    if not isinstance(operands[0], RowPlacement) or op.shape is None:
        return None
    return LocalOp((0, OwnRows(INT64, op.shape[1:])), "Reshape")


registry.register(
    Rule(Family.RELABEL, relabelled, _each_row, _own_rows),
    *("Identity", "StopGradient", "PreventGradient", "Snapshot"),
    *("Reshape", "ExpandDims", "Squeeze", "EnsureShape", "BroadcastTo"),
)
registry.register(Rule(Family.RELABEL, relabelled), "IdentityN")
