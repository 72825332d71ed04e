"""Where the result of an op lies whose operands are of a table cut at whole rows.

Every value is a table (cut at rows), belongs to the entries of the gradient (each shard has those
that name its rows, in their order), or is outside and the same on every replica. An op is local
where each row of its result needs that row of its operands and the entries that name it, alone; a
sum over rows or entries is the sum of what all shards add to it. A rule looks at nothing but the
ops, so that the branch of a condition is handled as the graph around it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import INT64, dtype_name
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.elementwise import ON_VECTORS
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.sparse import (
    EXACT,
    LOOK_UP,
    READ_ROWS,
    SEGMENT_SUM,
    SHAPE,
    STRIDED_SLICE,
    UNIQUE,
)
from tf_wu_shard.rules.sums import COMBINED_DTYPES, SUMS, kept_shape
from tf_wu_shard.weight_update.analysis.row_placement import RowPlacement, What
from tf_wu_shard.weight_update.analysis.types import ShardSum


@dataclasses.dataclass(frozen=True)
class Propagated:
    """What is known of an op.

    Attributes:
        results: Where its results lie.
        sum: What it sums, where it sums over rows or entries of several shards: its result is
            outside then.
        sliced: Numbers of its outside operands of which each shard takes its own rows.
    """

    results: tuple[RowPlacement, ...] = ()
    sum: ShardSum | None = None
    sliced: tuple[int, ...] = ()


class RowRules:
    """The rules, in one graph.

    Attributes:
        table: The shape of the table.
        inside: Whether the graph is a function that is called as it stands, with operands of a
            shard: nothing in it may get the numbers of the whole table.
    """

    def __init__(
        self,
        view: GraphView,
        table: tuple[int, ...],
        placements: Mapping[Value, RowPlacement],
        *,
        inside: bool = False,
    ) -> None:
        """Prepares the rules.

        Args:
            view: The graph.
            table: The shape of the table.
            placements: Where each value lies that depends on the shard; filled op by op.
            inside: See the class.
        """
        self._view = view
        self._placements = placements
        self.table = table
        self.inside = inside

    def propagate(self, op: Op, operands: Sequence[RowPlacement | None]) -> Propagated | Refusal:
        """Where the results of an op lie.

        Args:
            op: The op.
            operands: Where its operands lie; at least one depends on the shard.
        """
        family, first = family_of(op.type), operands[0]
        if op.type == SEGMENT_SUM:
            return self._segment_sum(op, operands)
        if op.type == LOOK_UP:
            return self._look_up(op, operands)
        if op.type == READ_ROWS:
            return refusals.Rows.ROWS_OF_ANOTHER.at(op.name)
        if op.type == "Cast" and first is not None and first.what is What.ROWS:
            # A wider type has the same numbers; a narrower one might not have all of them.
            if op.attribute("DstT").type == INT64:
                return Propagated((first,))
            return refusals.Rows.ROW_NUMBERS_NARROWED.at(op.name)
        if op.type == UNIQUE and first is not None and first.what is What.ROWS:
            places = RowPlacement(What.PLACES, first.entries, op.name)
            return Propagated((RowPlacement(What.ROWS, op.name), places))
        if op.type == SHAPE and first is not None and first.what in (What.ROWS, What.ENTRIES):
            return Propagated((RowPlacement(What.SIZES, first.entries),))
        if op.type == STRIDED_SLICE and first is not None and self.takes_first(op):
            if first.what is What.TABLE_SHAPE:
                return Propagated((RowPlacement(What.NUM_ROWS),))
            if first.what is What.SIZES:
                return Propagated((RowPlacement(What.COUNT, first.entries),))
        if family is Family.ELEMENTWISE and op.type not in ON_VECTORS:
            return self._elementwise(op, operands)
        if family is Family.SUM and first is not None and all(o is None for o in operands[1:]):
            return self._sum(op, first)
        if family is Family.RELABEL and first is not None and first.what is What.TABLE:
            return self._relabel(op, first)
        return refusals.Rows.NO_RULE_ON_ROWS.at(op.name, op_type=op.type)

    def read_rows(self, op: Op, rows: RowPlacement | None) -> Propagated | Refusal:
        """Rows of one of the update's own variables, which are a table, for each entry one."""
        if rows is None or rows.what is not What.ROWS or op.attribute("batch_dims").i != 0:
            return refusals.Rows.OTHER_ROWS_READ.at(op.name)
        return Propagated((RowPlacement(What.ENTRIES, rows.entries, shape=self.table[1:]),))

    def spread(self, op: Op) -> Propagated | Refusal:
        """An elementwise op that makes a table of what is outside: each shard makes its rows."""
        return self._on_table(op, [None] * len(op.inputs))

    def _segment_sum(self, op: Op, operands: Sequence[RowPlacement | None]) -> Propagated | Refusal:
        values, places, count = operands
        if values is not None and places is not None and values.what is What.ENTRIES:
            if places == RowPlacement(What.ROWS, values.entries) and self._is_num_rows(
                op.inputs[2]
            ):
                return Propagated((RowPlacement(What.TABLE, shape=(self.table[0], *values.shape)),))
            fits = places.what is What.PLACES and places.entries == values.entries
            if fits and count == RowPlacement(What.COUNT, places.into):
                return Propagated((dataclasses.replace(values, entries=places.into),))
        return refusals.Rows.OTHER_SEGMENT_SUM.at(op.name)

    def _look_up(self, op: Op, operands: Sequence[RowPlacement | None]) -> Propagated | Refusal:
        table, rows = operands[:2]
        axis = self._view.integers(op.inputs[2])
        plain = axis == (0,) and op.attribute("batch_dims").i == 0
        of_table = table is not None and table.what is What.TABLE
        if of_table and rows is not None and rows.what is What.ROWS and plain:
            assert table is not None, "it is of a table"
            return Propagated((RowPlacement(What.ENTRIES, rows.entries, shape=table.shape[1:]),))
        return refusals.Rows.OTHER_LOOK_UP.at(op.name)

    def _elementwise(self, op: Op, operands: Sequence[RowPlacement | None]) -> Propagated | Refusal:
        inside = {(p.what, p.entries) for p in operands if p is not None}
        if len(inside) != 1:
            return refusals.Rows.TABLE_WITH_ENTRIES.at(op.name)
        what, entries = inside.pop()
        if what is What.TABLE:
            return self._on_table(op, operands)
        if what is not What.ENTRIES:
            return refusals.Rows.COMPUTES_WITH_ROW_NUMBERS.at(op.name, what=what.value)
        if op.type not in EXACT:
            return refusals.Rows.ROUNDED_OTHERWISE.at(op.name, op_type=op.type)
        shapes = {p.shape for p in operands if p is not None}
        if len(shapes) != 1:
            return refusals.Rows.ENTRIES_OVER_ENTRIES.at(op.name)
        of_one = shapes.pop()
        for value, operand in zip(op.inputs, operands, strict=True):
            shape = self._view.shape(value) if operand is None else ()
            if shape is None:
                return refusals.Updates.OPERAND_SHAPE_UNKNOWN.at(value.op)
            # Every entry sees the same, and there are no more of them.
            alike = len(shape) <= len(of_one) or (len(shape) == len(of_one) + 1 and shape[0] == 1)
            if not alike or _broadcast([shape[-len(of_one) :] if of_one else (), of_one]) != of_one:
                return refusals.Rows.BROADCASTS_OVER_ENTRIES.at(op.name, shape=shape)
        return Propagated((RowPlacement(What.ENTRIES, entries, shape=of_one),))

    def _on_table(self, op: Op, operands: Sequence[RowPlacement | None]) -> Propagated | Refusal:
        """An elementwise op on tables and what is outside."""
        shapes: list[tuple[int, ...]] = []
        for value, operand in zip(op.inputs, operands, strict=True):
            shape = self._view.shape(value) if operand is None else operand.shape
            if shape is None:
                return refusals.Updates.OPERAND_SHAPE_UNKNOWN.at(value.op)
            shapes.append(shape)
        rank = max(map(len, shapes))
        result = _broadcast(shapes)
        rows = self.table[0]
        tables = [s for s, o in zip(shapes, operands, strict=True) if o is not None]
        if result is None or result[:1] != (rows,) or any(len(s) != rank for s in tables):
            return refusals.Rows.BROADCASTS_OVER_TABLE.at(op.name, table=self.table)
        sliced = tuple(
            number
            for number, (shape, operand) in enumerate(zip(shapes, operands, strict=True))
            if operand is None and len(shape) == rank and shape[0] == rows > 1
        )
        if sliced and self.inside:
            return refusals.Rows.ALL_ROWS_IN_BRANCH.at(op.name)
        return Propagated((RowPlacement(What.TABLE, shape=result),), sliced=sliced)

    def _sum(self, op: Op, first: RowPlacement) -> Propagated | Refusal:
        if first.what not in (What.TABLE, What.ENTRIES):
            return refusals.Rows.SUMS_ROW_NUMBERS.at(op.name, what=first.what.value)
        # How many entries there are is known when the step runs, and no mean is taken of them.
        of_table = first.what is What.TABLE
        shape = first.shape if of_table else (-1, *first.shape)
        axes: tuple[int, ...] | None = tuple(range(len(shape)))
        if len(op.inputs) > 1:
            axes = self._view.integers(op.inputs[1])
        if axes is None:
            return refusals.Rows.AXES_UNKNOWN_ON_ROWS.at(op.name)
        axes = tuple(sorted({axis % len(shape) for axis in axes}))
        result = kept_shape(shape, axes)
        if len(op.inputs) > 1 and op.attribute("keep_dims").b:
            result = tuple(1 if i in axes else size for i, size in enumerate(shape))
        if 0 not in axes:
            if of_table:
                return Propagated((RowPlacement(What.TABLE, shape=result),))
            return refusals.Rows.SUMS_EACH_ENTRY.at(op.name)
        rule, dtype = SUMS[op.type], self._view.dtype(Value(op.name))
        if rule.mean and not of_table:
            return refusals.Rows.MEAN_OF_ENTRIES.at(op.name)
        if dtype not in COMBINED_DTYPES[rule.combine]:
            return refusals.Rows.TYPE_NOT_SUMMED_ON_ROWS.at(op.name, dtype=dtype_name(dtype))
        if self.inside:
            return refusals.Rows.SUM_IN_BRANCH.at(op.name)
        return Propagated(sum=ShardSum(shape, axes, result, dtype))

    def _relabel(self, op: Op, first: RowPlacement) -> Propagated | Refusal:
        """A reshape of each row."""
        shape = self._view.shape(Value(op.name))
        if self.inside or shape is None:
            return refusals.Updates.OPERAND_SHAPE_UNKNOWN.at(op.name)
        if shape[:1] != self.table[:1] or math.prod(shape) != math.prod(first.shape):
            return refusals.Rows.RESIZES_ROWS.at(op.name, shape=shape)
        return Propagated((RowPlacement(What.TABLE, shape=shape),))

    def takes_first(self, op: Op) -> bool:
        """Whether a StridedSlice yields the first element of a vector as a scalar."""
        begin, end, stride = (self._view.integers(v) for v in op.inputs[1:])
        masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
        return (
            (begin, end, stride) == ((0,), (1,), (1,))
            and op.attribute("shrink_axis_mask").i == 1
            and all(op.attribute(mask).i == 0 for mask in masks)
        )

    def _is_num_rows(self, value: Value) -> bool:
        if self._placements.get(value) == RowPlacement(What.NUM_ROWS):
            return True
        if self.inside:
            return False
        op = self._view.producer(value)
        if op.type == STRIDED_SLICE and self.takes_first(op):
            return self.is_shape(op.inputs[0])
        return self._view.integers(value) == self.table[:1]

    def is_shape(self, value: Value) -> bool:
        """Whether a value is the table's shape, known when the step is traced."""
        op = self._view.source(value)
        if op.type == SHAPE:
            return self._view.shape(op.inputs[0]) == self.table
        return self._view.integers(Value(op.name)) == self.table


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that shapes broadcast to as NumPy's do, or None."""
    rank = max(map(len, shapes))
    found = []
    for sizes in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        more = {size for size in sizes if size != 1}
        if len(more) > 1:
            return None
        found.append(more.pop() if more else 1)
    return tuple(found)
