"""Ops on rows of a table: what an update is made of whose gradient names the rows it touches.

Such a gradient is a list of row numbers and one row of values for each. Cut at whole rows, shard
`i` of the table is updated by the entries that name its rows, in their order, and by no others:
each op below computes a row of its result from that row of the table and its entries alone.

- `UnsortedSegmentSum` adds up the entries of each row, in their order.
- `GatherV2` looks the table's rows up for all entries; both are on the same shard. So does
  `ResourceGather`, at its place among the writes, in a variable that is such a table.
- `Unique` lists the rows in the order of their first entries, which is kept among those of a shard.
- `StatelessIf` chooses for all shards alike, where its condition is the same for all.
- what writes some rows (see `writes`) changes those that the entries name.
- `StridedSlice` takes all entries or none of them, where a branch is written out that gets them.

Which operand is which is read off the ops' definitions in TensorFlow's math_ops.cc and
resource_variable_ops.cc.
"""

from __future__ import annotations

import dataclasses
from typing import TypeGuard

from tf_wu_shard import refusals
from tf_wu_shard.placement import RowPlacement, What
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.operation import LocalOp, Operation, OwnRows
from tf_wu_shard.rules.registry import Operands, Outcome, Rule

SEGMENT_SUM = "UnsortedSegmentSum"
LOOK_UP = "GatherV2"
READ_ROWS = "ResourceGather"
UNIQUE = "Unique"
SHAPE = "Shape"
STRIDED_SLICE = "StridedSlice"

# Marks a StridedSlice along the first dimension that takes all or nothing; which, its second bound
# decides, the same one for all lists of a branch.
ALL_OR_NONE = "_wu_shard_all_or_none"

# Ops that keep a value and its shape.
SAME = frozenset({"Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot"})

# A choice between two functions without effects.
BRANCH = "StatelessIf"


def _segment_sum(op: Operation, operands: Operands) -> Outcome:
    values, places, count = operands
    if _is(values, What.ENTRIES) and isinstance(places, RowPlacement):
        known = count == RowPlacement(What.NUM_ROWS) or op.constants.get(2) == (places.num_rows,)
        alike = places.entries == values.entries
        if places.what is What.ROWS and alike and known:
            return (RowPlacement(What.TABLE, shape=(places.num_rows, *values.shape)),)
        once = count == RowPlacement(What.COUNT, places.into)
        if places.what is What.PLACES and alike and once:
            return (dataclasses.replace(values, entries=places.into),)
    return refusals.Rows.OTHER_SEGMENT_SUM.at(op.name)


def _own_segments(op: Operation, operands: Operands) -> LocalOp | None:
    if not _is(operands[1], What.ROWS):
        return None
    return LocalOp((0, 1, OwnRows(op.attribute("Tnumsegments").type)))


def _look_up(op: Operation, operands: Operands) -> Outcome:
    table, rows = operands[:2]
    plain = op.constants.get(2) == (0,) and op.attribute("batch_dims").i == 0
    if _is(table, What.TABLE) and _is(rows, What.ROWS) and plain:
        return (RowPlacement(What.ENTRIES, rows.entries, shape=table.shape[1:]),)
    return refusals.Rows.OTHER_LOOK_UP.at(op.name)


def _read_rows(op: Operation, operands: Operands) -> Outcome:
    table, rows = operands
    if not _is(table, What.TABLE):
        return refusals.Rows.ROWS_OF_ANOTHER.at(op.name)
    if not _is(rows, What.ROWS) or op.attribute("batch_dims").i != 0:
        return refusals.Rows.OTHER_ROWS_READ.at(op.name)
    return (RowPlacement(What.ENTRIES, rows.entries, shape=table.shape[1:]),)


def _unique(op: Operation, operands: Operands) -> Outcome:
    (rows,) = operands
    if not _is(rows, What.ROWS):
        return registry.no_rule_on_rows(op)
    return (
        dataclasses.replace(rows, entries=op.name),
        RowPlacement(What.PLACES, rows.entries, op.name),
    )


def _shape(op: Operation, operands: Operands) -> Outcome:
    (first,) = operands
    if _is(first, What.ROWS) or _is(first, What.ENTRIES):
        return (RowPlacement(What.SIZES, first.entries),)
    return registry.no_rule_on_rows(op)


def _part(op: Operation, operands: Operands) -> Outcome:
    sizes = operands[0]
    if op.attribute(ALL_OR_NONE).b and (_is(sizes, What.ROWS) or _is(sizes, What.ENTRIES)):
        return (dataclasses.replace(sizes, entries=f"{sizes.entries} until {op.inputs[2]}"),)
    if registry.is_first(op) and _is(sizes, What.TABLE_SHAPE):
        return (RowPlacement(What.NUM_ROWS),)
    if registry.is_first(op) and _is(sizes, What.SIZES):
        return (RowPlacement(What.COUNT, sizes.entries),)
    return registry.no_rule_on_rows(op)


def _is(operand: object, what: What) -> TypeGuard[RowPlacement]:
    return isinstance(operand, RowPlacement) and operand.what is what


registry.register(Rule(rows=_segment_sum, localize=_own_segments, constants=(2,)), SEGMENT_SUM)
registry.register(Rule(rows=_look_up, constants=(2,)), LOOK_UP)
registry.register(Rule(rows=_read_rows), READ_ROWS)
registry.register(Rule(rows=_unique), UNIQUE)
registry.register(Rule(rows=_shape), SHAPE)
registry.register(Rule(rows=_part, constants=(1, 2, 3)), STRIDED_SLICE)
