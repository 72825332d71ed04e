"""What an update computes that a sparse gradient feeds, seen as a table cut at whole rows.

Going backward from its writes, as any update; the rules say of each op whether it is local to the
rows of a shard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.placement import Cut, Placement, RowPlacement, What
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.elementwise import EXACT, own_rows
from tf_wu_shard.rules.registry import Family, family_of, operation_of
from tf_wu_shard.rules.sparse import BRANCH, READ_ROWS, SAME, UNIQUE
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES, is_plain_write
from tf_wu_shard.step.gradients import sparse_gradients
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.row_branches import branch_on_rows, is_shape, lying
from tf_wu_shard.weight_update.analysis.types import RowBranch, all_entries
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice


class RowSlice(UpdateSlice):
    """The backward slice from the writes on replica 0 of an update of some rows.

    Attributes:
        table: The shape of every variable of the update.
        branches: After `place`: how the conditions in the body are done, by their names.
        gathered: The ops of the body whose results something outside looks at; filled by what
            knows what is outside.
    """

    _renaming = SAME

    def prepare(self, reductions: tuple[GradientReduction, ...]) -> Refusal | None:
        """Takes in what the gradient's parts are; why that does not do, or None.

        Args:
            reductions: All reductions of the graph, by key.
        """
        self.branches: dict[str, RowBranch] = {}
        self.gathered: set[str] = set()
        # Operands that are outside and of which each shard takes its own rows.
        self._sliced: set[tuple[str, Value]] = set()
        # Lists of entries whose order among all shards' is known.
        self._ordered = set[str]()
        shapes = {self._view.variables[h].shape for h in self._own_handles}
        where = self._writes[0].name
        if len(shapes) != 1:
            return refusals.Rows.ROWS_OF_DIFFERENT_SHAPES.at(where)
        self.table: tuple[int, ...] = shapes.pop() or ()
        if not self.table or self.size == 0:
            return refusals.Rows.NO_ROWS.at(where)
        self._table = RowPlacement(What.TABLE, shape=self.table)
        parts = [reductions[key] for key in self._keys]
        if any(part.gathered is None for part in parts):
            return refusals.Rows.SPARSE_AND_DENSE.at(where)
        for together in sparse_gradients(parts):
            refusal = self._take_gradient(together)
            if refusal is not None:
                return refusal
        return None

    def _take_gradient(self, parts: Sequence[GradientReduction]) -> Refusal | None:
        """Takes in what the parts of one gradient are; why that does not do, or None."""
        where, found = self._writes[0].name, {part.gathered: part.key for part in parts}
        if Gathered.VALUES not in found or Gathered.ROWS not in found:
            return refusals.Rows.PARTS_NOT_FOLLOWED.at(where)
        if len(found) < len(parts):
            return refusals.Rows.SEVERAL_SPARSE_GRADIENTS.at(where)
        entries = all_entries(found[Gathered.VALUES])
        self._ordered.add(entries)
        whats = {
            Gathered.VALUES: RowPlacement(What.ENTRIES, entries, shape=self.table[1:]),
            Gathered.ROWS: RowPlacement(What.ROWS, entries, num_rows=self.table[0]),
            Gathered.SHAPE: RowPlacement(What.TABLE_SHAPE),
        }
        for part in parts:
            assert part.gathered is not None, "they are all gathered"
            known = all(is_shape(self._view, v, self.table) for v in part.operands)
            if part.gathered is Gathered.SHAPE and not known:
                return refusals.Rows.NOT_THE_TABLES_SHAPE.at(where)
            for name in self._names.of(part.key, 0):
                if name != part.results[0] and self._view.producer(name).type not in SAME:
                    return refusals.Rows.RESHAPED_SPARSE_GRADIENT.at(name.op)
                self.placements[name] = whats[part.gathered]
        return None

    def placement(self, value: Value) -> RowPlacement | None:
        """Where a value lies; None where it is the same on every replica."""
        found = self.placements.get(value)
        assert found is None or isinstance(found, RowPlacement), "nothing else is placed here"
        return found

    def results(self, op: Op) -> list[Value]:
        """What an op of the body yields that depends on the shard, but for reads and shapes."""
        if op.type == READ or op.name in self._written_by:
            return []
        found = [(value, self.placement(value)) for value in self._view.results(op.name)]
        return [v for v, own in found if own is not None and own.what is not What.TABLE_SHAPE]

    def may_be_gathered(self, value: Value) -> bool:
        """Whether a value has some numbers for each row of the table, fewer than the table has."""
        placement = self.placement(value)
        assert placement is not None, "it is one of `results`"
        return placement.what is What.TABLE and math.prod(placement.shape) < self.size

    def _against_sizes(self) -> Refusal | None:
        """See `UpdateSlice`: `prepare` has asked for more."""
        return None

    def _placement_of(self, ref: VariableRef) -> Placement:
        return self._table

    def _placement(self, value: Value) -> Placement | None:
        """Where an operand lies; None where it is outside."""
        return self.placement(value)

    def _place_computed(self, op: Op) -> Refusal | None:
        operands = [self.placement(v) for v in op.inputs]
        if op.type == BRANCH and any(p is not None for p in operands):
            return self._place_branch(op, operands)
        if op.type == READ_ROWS and op.inputs[0].op in self._own_handles:
            operands[0] = self._table
        if all(p is None for p in operands) and not self._makes_a_table(op):
            return None
        operation, placed = operation_of(self._view, op), lying(self._view, op, operands)
        results = registry.propagate(operation, placed, Cut.ROWS)
        if isinstance(results, Refusal):
            return None if self._looks_at_the_shape(operands) else results
        if self._is_done_on_all_rows(op, results):
            return None
        for number, result in enumerate(results):
            if isinstance(result, RowPlacement):
                self.placements[Value(op.name, number)] = result
        if family_of(op.type) is Family.ELEMENTWISE:
            self._sliced.update((op.name, op.inputs[n]) for n in own_rows(placed, results))
        self._add_to_body(op, operation, placed, results[0])
        return None

    def _is_done_on_all_rows(self, op: Op, results: Sequence[Placement]) -> bool:
        """Whether an op on a few numbers of each row is left outside, where all rows' are gathered.

        Rows of fewer elements than the table's do not begin where a kernel's vectors do, so that
        one that approximates might round otherwise than on all of them.
        """
        elementwise = family_of(op.type) is Family.ELEMENTWISE and op.type not in EXACT
        return elementwise and math.prod(results[0].shape) < self.size

    def _place_branch(self, op: Op, operands: list[RowPlacement | None]) -> Refusal | None:
        branch = branch_on_rows(self._view, op, operands, self.table)
        if isinstance(branch, Refusal):
            return branch
        if branch.whole:
            taken = {p.entries for p in branch.operands if p is not None and p.entries}
            if not self._ordered.issuperset(taken):
                return refusals.Rows.ORDER_OF_ENTRIES_UNKNOWN.at(op.name)
            self._ordered.add(op.name)
        for value, before, placement in zip(
            op.inputs[1:], operands[1:], branch.operands, strict=True
        ):
            if before is None and placement is not None and placement.what is What.TABLE:
                self._sliced.add((op.name, value))
        for i, placement in enumerate(branch.results):
            self.placements[Value(op.name, i)] = placement
        self.branches[op.name] = branch
        self.body.append(op)
        return None

    def _looks_at_the_shape(self, operands: list[RowPlacement | None]) -> bool:
        """Whether an op depends on the shape of the table alone, which every replica knows."""
        inside = [p for p in operands if p is not None]
        return bool(inside) and all(p.what is What.TABLE_SHAPE for p in inside)

    def _makes_a_table(self, op: Op) -> bool:
        """Whether an op makes a table for the update alone of what is smaller and outside."""
        if family_of(op.type) is not Family.ELEMENTWISE or math.prod(self.table) == 1:
            return False
        shapes = [self._view.shape(value) for value in op.inputs]
        if self._view.shape(Value(op.name)) != self.table or self.table in shapes:
            return False
        return self._is_of_the_update(op)

    def _check_write(self, op: Op) -> Refusal | None:
        """Whether a write's operands are what its shard needs."""
        write = WRITES[op.type]
        if any(value.op not in self._own_handles for value in op.inputs[: write.num_handles]):
            return refusals.Updates.ALSO_WRITES.at(op.name, op_type=op.type)
        operands = [self.placement(v) for v in op.inputs]
        if write.rows is None:
            return self._check_whole_write(op, operands[write.operand])
        others = set(range(write.num_handles, len(operands))) - {write.rows, write.operand}
        if any(operands[number] is not None for number in others):
            return refusals.Rows.SCALAR_OF_SPARSE_GRADIENT.at(op.name)
        rows, values = operands[write.rows], operands[write.operand]
        entries = RowPlacement(What.ENTRIES, rows.entries, shape=self.table[1:]) if rows else None
        if rows is None or values != entries or rows.what is not What.ROWS:
            return refusals.Rows.NO_ROW_EACH_WRITTEN.at(op.name)
        if write.is_fused and not self._made_by(rows.entries, UNIQUE):
            return refusals.Rows.ROWS_MAY_REPEAT.at(op.name)
        return None

    def _check_whole_write(self, op: Op, written: RowPlacement | None) -> Refusal | None:
        """Whether what is written to all of a table is a table, or the shard's rows of one."""
        if not is_plain_write(op.type):
            return refusals.Rows.NO_RULE_ON_ROWS.at(op.name, op_type=op.type)
        if written == self._table:
            return None
        if written is not None or self._view.shape(op.inputs[1]) != self.table:
            return refusals.Rows.NO_TABLE_WRITTEN.at(op.name)
        if math.prod(self.table) > 1:
            self._sliced.add((op.name, op.inputs[1]))
        return None

    def _made_by(self, entries: str, op_type: str) -> bool:
        """Whether an op of some type made a list of entries."""
        return entries in self._view.ops and self._view.ops[entries].type == op_type

    def is_slice(self, op: Op, value: Value) -> bool:
        """Whether an outside operand is a table of which each shard takes its own rows."""
        return (op.name, value) in self._sliced
