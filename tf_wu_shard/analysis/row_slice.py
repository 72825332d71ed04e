"""What an update computes that a sparse gradient feeds, seen as a table cut at whole rows.

Every value is a table (cut at rows), belongs to the entries of the gradient (each shard has those
that name its rows, in their order), or is outside and the same on every replica. An op is local
where each row of its result needs that row of its operands and the entries that name it, alone.
"""

from __future__ import annotations

import dataclasses
import enum
import math

from tf_wu_shard.analysis.types import GradientReduction
from tf_wu_shard.analysis.update_slice import UpdateSlice
from tf_wu_shard.dialects.base import Gathered
from tf_wu_shard.graph.constants import integers
from tf_wu_shard.graph.view import Op, Value
from tf_wu_shard.placement import Refusal
from tf_wu_shard.rules.elementwise import ON_VECTORS
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.sparse import (
    EXACT,
    LOOK_UP,
    SCATTERS,
    SEGMENT_SUM,
    SHAPE,
    SPARSE_FUSED,
    STRIDED_SLICE,
    UNIQUE,
)
from tf_wu_shard.rules.variables import READ, WRITES

# The relabelling ops that also keep the shape.
_SAME = frozenset({"Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot"})
_ALL = "all entries"


class What(enum.Enum):
    """What a value is that depends on the shard."""

    TABLE = "a table of the variables' shape"
    ENTRIES = "one row for each entry"
    ROWS = "the number of each entry's row"
    PLACES = "for each entry, its row's place in a list of rows without repetitions"
    SIZES = "the shape of something with a row for each entry"
    COUNT = "how many entries there are"
    TABLE_SHAPE = "the shape of the table"
    NUM_ROWS = "how many rows the table has"


@dataclasses.dataclass(frozen=True)
class Lies:
    """Where a value lies.

    Attributes:
        what: What it is.
        entries: Of which list of entries; "" of a table. The op that made it, for one without
            repetitions.
        into: PLACES: the list without repetitions.
    """

    what: What
    entries: str = ""
    into: str = ""


_TABLE = Lies(What.TABLE)


class RowSlice(UpdateSlice):
    """The backward slice from the writes on replica 0 of an update of some rows.

    Attributes:
        table: The shape of every variable of the update.
    """

    def prepare(self, reductions: tuple[GradientReduction, ...]) -> Refusal | None:
        """Takes in what the gradient's parts are; why that does not do, or None.

        Args:
            reductions: All reductions of the graph, by key.
        """
        self._lies: dict[Value, Lies] = {}
        shapes = {self._view.variables[h].shape for h in self._own_handles}
        where = self._writes[0].name
        if len(shapes) != 1:
            return Refusal(where, "it mixes variables of different shapes")
        self.table: tuple[int, ...] = shapes.pop() or ()
        if not self.table or self.size == 0:
            return Refusal(where, "it has no rows")
        parts = [reductions[key] for key in self._keys]
        kinds = [part.gathered for part in parts]
        if None in kinds:
            return Refusal(where, "it mixes a sparse and a dense gradient")
        if Gathered.VALUES not in kinds or Gathered.ROWS not in kinds:
            return Refusal(where, "its values or rows were not followed from the gradient")
        if kinds.count(Gathered.VALUES) > 1 or kinds.count(Gathered.ROWS) > 1:
            return Refusal(where, "several sparse gradients update it together")
        whats = {
            Gathered.VALUES: Lies(What.ENTRIES, _ALL),
            Gathered.ROWS: Lies(What.ROWS, _ALL),
            Gathered.SHAPE: Lies(What.TABLE_SHAPE),
        }
        for part in parts:
            assert part.gathered is not None, "they are all gathered"
            if part.gathered is Gathered.SHAPE and not all(map(self._is_shape, part.operands)):
                return Refusal(where, "the shape of its gradient is not known to be the table's")
            for name in self._names.of(part.key, 0):
                self._lies[name] = whats[part.gathered]
        return None

    def lies(self, value: Value) -> Lies | None:
        """Where a value lies; None where it is the same on every replica."""
        return self._lies.get(value)

    def place(self) -> Refusal | None:
        """See `UpdateSlice.place`."""
        for op in sorted(self._ancestors(), key=lambda o: o.position):
            refusal = self._place_op(op)
            if refusal is not None:
                return refusal
        return None

    def _place_op(self, op: Op) -> Refusal | None:
        if op.type == READ:
            if op.inputs[0].op in self._own_handles:
                self._lies[Value(op.name)] = _TABLE
                self.body.append(op)
            return None
        if op in self._writes:
            self.body.append(op)
            return self._check_write(op)
        operands = [self._lies.get(v) for v in op.inputs]
        if op.type in _SAME:
            for i, (value, lies) in enumerate(zip(op.inputs, operands, strict=True)):
                if lies is not None:
                    self._lies[Value(op.name, i)] = lies
                    self._sources[Value(op.name, i)] = self.source(value)
            return None
        if all(lies is None for lies in operands):
            return None
        found = self._results(op, operands)
        if isinstance(found, Refusal):
            return found
        for i, lies in enumerate(found):
            self._lies[Value(op.name, i)] = lies
        self.body.append(op)
        return None

    def _results(self, op: Op, operands: list[Lies | None]) -> tuple[Lies, ...] | Refusal:
        """Where the results of an op lie."""
        if op.type == SEGMENT_SUM:
            return self._segment_sum(op, operands)
        if op.type == LOOK_UP:
            return self._look_up(op, operands)
        first = operands[0]
        if op.type == UNIQUE and first is not None and first.what is What.ROWS:
            return Lies(What.ROWS, op.name), Lies(What.PLACES, first.entries, op.name)
        if op.type == SHAPE and first is not None and first.what in (What.ROWS, What.ENTRIES):
            return (Lies(What.SIZES, first.entries),)
        if op.type == STRIDED_SLICE and first is not None and self._takes_first(op):
            if first.what is What.TABLE_SHAPE:
                return (Lies(What.NUM_ROWS),)
            if first.what is What.SIZES:
                return (Lies(What.COUNT, first.entries),)
        if family_of(op.type) is Family.ELEMENTWISE and op.type not in ON_VECTORS:
            return self._elementwise(op, operands)
        return Refusal(op.name, f"no rule for {op.type} on rows of a table")

    def _segment_sum(self, op: Op, operands: list[Lies | None]) -> tuple[Lies, ...] | Refusal:
        values, places, count = operands
        if values is not None and places is not None and values.what is What.ENTRIES:
            if places == Lies(What.ROWS, values.entries) and self._is_num_rows(op.inputs[2]):
                return (_TABLE,)
            fits = places.what is What.PLACES and places.entries == values.entries
            if fits and count == Lies(What.COUNT, places.into):
                return (Lies(What.ENTRIES, places.into),)
        return Refusal(op.name, "it adds up something else than the entries of each row")

    def _look_up(self, op: Op, operands: list[Lies | None]) -> tuple[Lies, ...] | Refusal:
        table, rows = operands[:2]
        axis = integers(self._view.constant(op.inputs[2]))
        plain = axis == (0,) and op.node.attr["batch_dims"].i == 0
        if table == _TABLE and rows is not None and rows.what is What.ROWS and plain:
            return (Lies(What.ENTRIES, rows.entries),)
        return Refusal(op.name, "it looks up something else than rows of the table")

    def _elementwise(self, op: Op, operands: list[Lies | None]) -> tuple[Lies, ...] | Refusal:
        inside = {lies for lies in operands if lies is not None}
        if len(inside) != 1:
            return Refusal(op.name, "it mixes a table with entries, or entries with others")
        lies = inside.pop()
        if lies.what not in (What.TABLE, What.ENTRIES):
            return Refusal(op.name, f"it computes with {lies.what.value}")
        if lies.what is What.ENTRIES and op.type not in EXACT:
            return Refusal(
                op.name, f"{op.type} of some entries may be rounded otherwise than of all"
            )
        for value, operand in zip(op.inputs, operands, strict=True):
            if operand is not None:
                continue
            shape = self._view.shape(value)
            if shape is None:
                return Refusal(value.op, "the shape of its result is not known when traced")
            if lies.what is What.TABLE and shape == self.table:
                continue
            if not self._same_for_all_rows(shape):
                return Refusal(op.name, f"it broadcasts {list(shape)} over {list(self.table)}")
        return (lies,)

    def _same_for_all_rows(self, shape: tuple[int, ...]) -> bool:
        """Whether a shape broadcasts to every row alike, and makes no more of them."""
        if len(shape) > len(self.table) or (len(shape) == len(self.table) and shape[0] != 1):
            return False
        behind = shape[-len(self.table) + 1 :] if len(self.table) > 1 else ()
        sizes = self.table[len(self.table) - len(behind) :]
        return all(a in (1, b) for a, b in zip(behind, sizes, strict=True))

    def _takes_first(self, op: Op) -> bool:
        """Whether a StridedSlice yields the first element of a vector as a scalar."""
        begin, end, stride = (integers(self._view.constant(v)) for v in op.inputs[1:])
        attributes = op.node.attr
        masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
        return (
            (begin, end, stride) == ((0,), (1,), (1,))
            and attributes["shrink_axis_mask"].i == 1
            and all(attributes[mask].i == 0 for mask in masks)
        )

    def _is_num_rows(self, value: Value) -> bool:
        if self._lies.get(value) == Lies(What.NUM_ROWS):
            return True
        op = self._view.producer(value)
        if op.type == STRIDED_SLICE and self._takes_first(op):
            return self._is_shape(op.inputs[0])
        return integers(self._view.constant(value)) == self.table[:1]

    def _is_shape(self, value: Value) -> bool:
        """Whether a value is the table's shape, known when the step is traced."""
        op = self._view.producer(value)
        while op.type == "Identity":
            value = op.inputs[0]
            op = self._view.producer(value)
        if op.type == SHAPE:
            return self._view.shape(op.inputs[0]) == self.table
        return integers(self._view.constant(value)) == self.table

    def _check_write(self, op: Op) -> Refusal | None:
        """Whether a write's operands are what its shard needs."""
        sparse = SPARSE_FUSED.get(op.type)
        handles = sparse.num_handles if sparse else 1
        if any(value.op not in self._own_handles for value in op.inputs[:handles]):
            return Refusal(op.name, "it updates variables that no gradient reaches")
        operands = [self._lies.get(v) for v in op.inputs]
        if op.type in WRITES:
            if operands[1] == _TABLE or self._view.shape(op.inputs[1]) == self.table:
                return None
            return Refusal(op.name, "it writes something else than a table of its shape")
        if op.type in SCATTERS:
            slots = (1, 2)
        elif sparse is not None:
            slots = (sparse.rows, sparse.gradient)
            others = set(range(handles, len(operands))) - set(slots)
            if any(operands[i] is not None for i in others):
                return Refusal(op.name, "one of its scalars depends on the gradient")
        else:
            return Refusal(op.name, f"no rule for {op.type} on rows of a table")
        rows, values = (operands[slot] for slot in slots)
        if rows is None or values != Lies(What.ENTRIES, rows.entries) or rows.what is not What.ROWS:
            return Refusal(op.name, "it writes something else than one row for each entry")
        if sparse is not None and rows.entries == _ALL:
            return Refusal(op.name, "the rows that it updates may repeat")
        return None

    def is_slice(self, op: Op, value: Value) -> bool:
        """Whether an outside operand is a table of which each shard takes its own rows."""
        cuts = op.type in WRITES or any(self._lies.get(v) == _TABLE for v in op.inputs)
        return cuts and math.prod(self.table) > 1 and self._view.shape(value) == self.table
