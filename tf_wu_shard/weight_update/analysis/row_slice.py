"""What an update computes that a sparse gradient feeds, seen as a table cut at whole rows.

Going backward from its writes, as any update; `row_rules` says of each op whether it is local to
the rows of a shard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.sparse import BRANCH, EXACT, READ_ROWS, SAME, SCATTERS, SPARSE_FUSED, UNIQUE
from tf_wu_shard.rules.variables import READ, WRITES
from tf_wu_shard.step.gradients import sparse_gradients
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.row_branches import branch_on_rows
from tf_wu_shard.weight_update.analysis.row_lies import Lies, RowBranch, What, all_entries
from tf_wu_shard.weight_update.analysis.row_rules import Judged, RowRules
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice


class RowSlice(UpdateSlice):
    """The backward slice from the writes on replica 0 of an update of some rows.

    Attributes:
        table: The shape of every variable of the update.
        branches: After `place`: how the conditions in the body are done, by their names.
        gathered: The ops of the body whose results something outside looks at; filled by what
            knows what is outside.
    """

    def prepare(self, reductions: tuple[GradientReduction, ...]) -> Refusal | None:
        """Takes in what the gradient's parts are; why that does not do, or None.

        Args:
            reductions: All reductions of the graph, by key.
        """
        self._lies: dict[Value, Lies] = {}
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
        self._table = Lies(What.TABLE, shape=self.table)
        self._rules = RowRules(self._view, self.table, self._lies)
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
            Gathered.VALUES: Lies(What.ENTRIES, entries, shape=self.table[1:]),
            Gathered.ROWS: Lies(What.ROWS, entries),
            Gathered.SHAPE: Lies(What.TABLE_SHAPE),
        }
        for part in parts:
            assert part.gathered is not None, "they are all gathered"
            known = all(map(self._rules.is_shape, part.operands))
            if part.gathered is Gathered.SHAPE and not known:
                return refusals.Rows.NOT_THE_TABLES_SHAPE.at(where)
            for name in self._names.of(part.key, 0):
                if name != part.results[0] and self._view.producer(name).type not in SAME:
                    return refusals.Rows.RESHAPED_SPARSE_GRADIENT.at(name.op)
                self._lies[name] = whats[part.gathered]
        return None

    def lies(self, value: Value) -> Lies | None:
        """Where a value lies; None where it is the same on every replica."""
        return self._lies.get(value)

    def results(self, op: Op) -> list[Value]:
        """What an op of the body yields that depends on the shard, but for reads and shapes."""
        if op.type == READ or op.name in self._written_by:
            return []
        found = [value for value in self._view.results(op.name) if value in self._lies]
        return [value for value in found if self._lies[value].what is not What.TABLE_SHAPE]

    def may_be_gathered(self, value: Value) -> bool:
        """Whether a value has some numbers for each row of the table, fewer than the table has."""
        lies = self._lies[value]
        return lies.what is What.TABLE and math.prod(lies.shape) < self.size

    def place(self) -> Refusal | None:
        """See `UpdateSlice.place`."""
        ancestors = self._ancestors()
        self._within = {op.name for op in ancestors}
        for op in sorted(ancestors, key=lambda o: o.position):
            refusal = self._place_op(op)
            if refusal is not None:
                return refusal
        return None

    def _place_op(self, op: Op) -> Refusal | None:
        if op.type == READ:
            if op.inputs[0].op in self._own_handles:
                self._lies[Value(op.name)] = self._table
                self.body.append(op)
            elif op.inputs[0].op in self._view.variables:
                self.read_besides.add(self._view.variables[op.inputs[0].op].key)
            return None
        if op.name in self._written_by:
            self.body.append(op)
            return self._check_write(op)
        operands = [self._lies.get(v) for v in op.inputs]
        if op.type in SAME:
            for i, (value, lies) in enumerate(zip(op.inputs, operands, strict=True)):
                if lies is not None:
                    self._lies[Value(op.name, i)] = lies
                    self._sources[Value(op.name, i)] = self.source(value)
            return None
        if op.type == BRANCH and any(lies is not None for lies in operands):
            return self._place_branch(op, operands)
        if op.type == READ_ROWS and op.inputs[0].op in self._own_handles:
            read = self._rules.read_rows(op, operands[1])
            if not isinstance(read, Refusal):
                self._place_judged(op, read)
            return read if isinstance(read, Refusal) else None
        outside = all(lies is None for lies in operands)
        if outside and not self._makes_a_table(op):
            return None
        judged = self._rules.spread(op) if outside else self._rules.judge(op, operands)
        if isinstance(judged, Refusal):
            return None if self._looks_at_the_shape(operands) else judged
        if self._is_done_on_all_rows(op, judged):
            return None
        self._place_judged(op, judged)
        return None

    def _is_done_on_all_rows(self, op: Op, judged: Judged) -> bool:
        """Whether an op on a few numbers of each row is left outside, where all rows' are gathered.

        Rows of fewer elements than the table's do not begin where a kernel's vectors do, so that
        one that approximates might round otherwise than on all of them.
        """
        elementwise = family_of(op.type) is Family.ELEMENTWISE and op.type not in EXACT
        return elementwise and any(
            lies.what is What.TABLE and math.prod(lies.shape) < self.size for lies in judged.results
        )

    def _place_judged(self, op: Op, judged: Judged) -> None:
        for i, lies in enumerate(judged.results):
            self._lies[Value(op.name, i)] = lies
        if judged.sum is not None:
            self.sums[op.name] = judged.sum
        self._sliced.update((op.name, op.inputs[number]) for number in judged.sliced)
        self.body.append(op)

    def _place_branch(self, op: Op, operands: list[Lies | None]) -> Refusal | None:
        branch = branch_on_rows(self._view, op, operands, self._rules)
        if isinstance(branch, Refusal):
            return branch
        if branch.whole:
            taken = {lies.entries for lies in branch.operands if lies is not None and lies.entries}
            if not self._ordered.issuperset(taken):
                return refusals.Rows.ORDER_OF_ENTRIES_UNKNOWN.at(op.name)
            self._ordered.add(op.name)
        for value, before, lies in zip(op.inputs[1:], operands[1:], branch.operands, strict=True):
            if before is None and lies is not None and lies.what is What.TABLE:
                self._sliced.add((op.name, value))
        for i, lies in enumerate(branch.results):
            self._lies[Value(op.name, i)] = lies
        self.branches[op.name] = branch
        self.body.append(op)
        return None

    def _looks_at_the_shape(self, operands: list[Lies | None]) -> bool:
        """Whether an op depends on the shape of the table alone, which every replica knows."""
        inside = [lies for lies in operands if lies is not None]
        return bool(inside) and all(lies.what is What.TABLE_SHAPE for lies in inside)

    def _makes_a_table(self, op: Op) -> bool:
        """Whether an op makes a table for the update alone of what is smaller and outside."""
        if family_of(op.type) is not Family.ELEMENTWISE or math.prod(self.table) == 1:
            return False
        shapes = [self._view.shape(value) for value in op.inputs]
        if self._view.shape(Value(op.name)) != self.table or self.table in shapes:
            return False
        return all(
            consumer.name in self._within
            and (
                consumer.name in self._written_by or family_of(consumer.type) is Family.ELEMENTWISE
            )
            for consumer, _ in self._view.consumers(Value(op.name))
        )

    def _check_write(self, op: Op) -> Refusal | None:
        """Whether a write's operands are what its shard needs."""
        sparse = SPARSE_FUSED.get(op.type)
        handles = sparse.num_handles if sparse else 1
        if any(value.op not in self._own_handles for value in op.inputs[:handles]):
            return refusals.Updates.ALSO_WRITES.at(op.name, op_type=op.type)
        operands = [self._lies.get(v) for v in op.inputs]
        if op.type in WRITES:
            if operands[1] == self._table:
                return None
            if operands[1] is None and self._view.shape(op.inputs[1]) == self.table:
                if math.prod(self.table) > 1:
                    self._sliced.add((op.name, op.inputs[1]))
                return None
            return refusals.Rows.NO_TABLE_WRITTEN.at(op.name)
        if op.type in SCATTERS:
            slots = (1, 2)
        elif sparse is not None:
            slots = (sparse.rows, sparse.gradient)
            others = set(range(handles, len(operands))) - set(slots)
            if any(operands[i] is not None for i in others):
                return refusals.Rows.SCALAR_OF_SPARSE_GRADIENT.at(op.name)
        else:
            return refusals.Rows.NO_RULE_ON_ROWS.at(op.name, op_type=op.type)
        rows, values = (operands[slot] for slot in slots)
        entries = Lies(What.ENTRIES, rows.entries, shape=self.table[1:]) if rows else None
        if rows is None or values != entries or rows.what is not What.ROWS:
            return refusals.Rows.NO_ROW_EACH_WRITTEN.at(op.name)
        if sparse is not None and not self._made_by(rows.entries, UNIQUE):
            return refusals.Rows.ROWS_MAY_REPEAT.at(op.name)
        return None

    def _made_by(self, entries: str, op_type: str) -> bool:
        """Whether an op of some type made a list of entries."""
        return entries in self._view.ops and self._view.ops[entries].type == op_type

    def is_slice(self, op: Op, value: Value) -> bool:
        """Whether an outside operand is a table of which each shard takes its own rows."""
        return (op.name, value) in self._sliced
