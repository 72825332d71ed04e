"""Where a gradient enters the update of its weight, in a step that was traced on one device.

On one device nothing is reduced. On N replicas, what each computes from its own part of the batch
would be; so the place is where all of that enters the update by *one* value. Values that depend on
the function's own inputs, on random numbers or on other state are followed through the graph. Of
the writes of a weight, and of the variables that its update reads and writes besides (its slots),
the last value is taken that lies on every way from such an input to any of these writes: their
nearest common dominator. What lies behind it depends on it and on values that all replicas share;
to have it summed there is what data-parallel training does. Where there is no such value, nothing
is guessed.

A sparse gradient enters by two values, numbers of rows and a row of values for each. Where an
update takes numbers of rows, these are left out of what a replica has of its own, and the last
value that all else enters by, and that does not depend on them, holds the gradient's values.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.inspection.one_device.dominators import Dominators
from tf_wu_shard.inspection.one_device.row_numbers import behind_rows, rows_entering
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.writes import WRITES, writes_rows
from tf_wu_shard.weight_update.analysis.kept_slots import MOST_STATES, states_behind


@dataclasses.dataclass(frozen=True)
class SparseGradient:
    """A sparse gradient, by its two parts.

    Attributes:
        values: One row of values for each entry.
        rows: The number of each entry's row.
    """

    values: Value
    rows: Value


@dataclasses.dataclass(frozen=True)
class _Update:
    """What is written to a weight and to its slots.

    Attributes:
        ref: The weight.
        where: What a refusal names.
        writes: The ops that write the weight or a slot.
        slots: The slots' keys.
    """

    ref: VariableRef
    where: str
    writes: tuple[Op, ...]
    slots: frozenset[str]


class Entering:
    """The gradients of a step, each where it enters the update of a weight.

    Attributes:
        gradients: The values, each once, in the order of the graph.
        sparse: The sparse gradients, in the order of their values.
        refusals: For each weight that has none, why; the place is what is written to it.
    """

    def __init__(self, view: GraphView) -> None:
        """Looks for them.

        Args:
            view: The graph.
        """
        self._view = view
        self._dominators = Dominators(view)
        self._sizes = {ref.key: math.prod(ref.shape or ()) for ref in view.variables.values()}
        trained = {ref.key for ref in view.variables.values() if ref.trainable}
        self._states = states_behind(view, self._dominators.held - trained)
        self.refusals: list[Refusal] = []
        found: dict[Value, None] = {}
        by_rows: list[tuple[_Update, Value]] = []
        for ref in view.variables.values():
            writes = self._dominators.writes.get(ref.key, [])
            if not ref.trainable or not writes:
                continue
            update = self._update(ref, writes)
            outcome = update if isinstance(update, Refusal) else self._gradient(update)
            if isinstance(update, _Update):
                rows = self._rows(update, outcome)
                if rows is not None:
                    by_rows.append((update, rows))
                    continue
            if isinstance(outcome, Refusal):
                self.refusals.append(outcome)
            elif outcome is not None:
                found[outcome] = None
        self.gradients = sorted(found, key=lambda value: view.producer(value).position)
        self.sparse = self._sparse(by_rows) if by_rows else []

    def _update(self, ref: VariableRef, writes: Sequence[Op]) -> _Update | Refusal:
        """What is written to a weight and its slots, or why that is not known."""
        written = [value for op in writes for value in self._operands(op)]
        where = written[0].op if written else writes[0].name
        where = next((v.op for v in written if self._dominators.of(v) is not None), where)
        other = next((op for op in writes if op.type not in WRITES), None)
        if other is not None:
            return refusals.Inspection.INSIDE_OF_BRANCH.at(other.name, op_type=other.type)
        slots = self._slots(written, math.prod(ref.shape or ()))
        if slots is None:
            return refusals.Inspection.TOO_MANY_VARIABLES.at(where, most=MOST_STATES)
        others = (write for key in slots for write in self._dominators.writes.get(key, ()))
        ops = {op.name: op for op in (*writes, *others)}
        return _Update(ref, where, tuple(ops.values()), slots)

    def _entering(self, update: _Update) -> list[Value]:
        return [value for write in update.writes for value in self._operands(write)]

    def _gradient(self, update: _Update) -> Value | Refusal | None:
        """The gradient of a weight; None where nothing of a replica's own is written to it."""
        entering, where = self._entering(update), update.where
        numbers = [n for value in entering if (n := self._dominators.of(value)) is not None]
        if any(writes_rows(op.type) for op in update.writes):
            return refusals.Inspection.ROWS_UNKNOWN.at(where)
        if not numbers:
            return None
        # A slot belongs to the update: what was computed with it is no gradient yet.
        number = self._dominators.before(
            self._dominators.common(numbers), lambda name: self._holds_slot(update, name)
        )
        value = self._dominators.value(number)
        if value is None:
            return refusals.Inspection.AMBIGUOUS_GRADIENT.at(where)
        return self._fitting(value, update.ref.shape, where)

    def _holds_slot(self, update: _Update, name: str) -> bool:
        return not update.slots.isdisjoint(self._states.get(name, frozenset()))

    def _rows(self, update: _Update, outcome: Value | Refusal | None) -> Value | None:
        """The row numbers of a weight's gradient; None where it is none that names rows."""
        gradient = outcome if isinstance(outcome, Value) else None
        return rows_entering(
            self._view, self._dominators, update.writes, update.ref.shape, gradient
        )

    def _sparse(self, updates: Sequence[tuple[_Update, Value]]) -> list[SparseGradient]:
        """The gradients that name rows; why there are none goes to the refusals.

        That rows are a replica's own is known of all of them, and what else is enters by the
        values: one look for all updates.
        """
        rows = [found for _, found in updates]
        names = Counter(found.op for found in rows)
        dominators = Dominators(self._view, frozenset(rows))
        behind = behind_rows(self._view, frozenset(rows), dominators.writes)
        found: list[SparseGradient] = []
        for update, own in updates:
            if names[own.op] > 1:
                outcome: Value | Refusal = refusals.Inspection.ROWS_OF_TWO_GRADIENTS.at(
                    update.where, op=own.op
                )
            else:
                outcome = self._values(update, own, dominators, behind)
            if isinstance(outcome, Refusal):
                self.refusals.append(outcome)
            else:
                found.append(SparseGradient(outcome, own))
        return sorted(found, key=lambda one: self._view.producer(one.values).position)

    def _values(
        self,
        update: _Update,
        rows: Value,
        dominators: Dominators,
        behind: Mapping[str, object],
    ) -> Value | Refusal:
        """The values of a gradient that names rows."""
        where, entering = update.where, self._entering(update)
        shared = dominators.shared
        named = [value if value in shared else behind.get(value.op) for value in entering]
        if any(other is not None and other != rows for other in named):
            return refusals.Inspection.AMBIGUOUS_GRADIENT.at(where)
        numbers = [n for value in entering if (n := dominators.of(value)) is not None]
        value = None
        if numbers:
            number = dominators.before(
                dominators.common(numbers),
                lambda name: name in behind or self._holds_slot(update, name),
            )
            value = dominators.value(number)
        if value is None:
            return refusals.Inspection.AMBIGUOUS_GRADIENT.at(where)
        return self._of_entries(value, rows, update)

    def _of_entries(self, value: Value, rows: Value, update: _Update) -> Value | Refusal:
        """The same value, if it may be a row of the table for each entry."""
        table, shape = update.ref.shape, self._view.shape(value)
        numbers = self._view.shape(rows)
        if table is None:
            return self._unknown_shape(value, update.where)
        if self._view.dtype(value) != update.ref.dtype:
            return refusals.Inspection.GRADIENT_OF_OTHER_TYPE.at(update.where, value=str(value))
        fits = shape is None or (len(shape) == len(table) and shape[1:] == table[1:])
        if shape is not None and numbers is not None:
            fits = fits and shape[:1] == numbers
        if not fits or not table:
            return refusals.Inspection.GRADIENT_OF_NO_ROWS.at(
                update.where, value=str(value), shape=shape or (), table=table
            )
        return value

    def _fitting(self, value: Value, shape: tuple[int, ...] | None, where: str) -> Value | Refusal:
        size = self._view.shape(value)
        if shape is None:
            return self._unknown_shape(value, where)
        # An open shape is made sure to be the weight's when the step runs.
        if size is not None and math.prod(size) != math.prod(shape):
            return refusals.Inspection.GRADIENT_OF_OTHER_SIZE.at(
                where, value=str(value), shape=size, weight=shape
            )
        return value

    def _unknown_shape(self, value: Value, where: str) -> Refusal:
        return refusals.Inspection.GRADIENT_SHAPE_UNKNOWN.at(where, value=str(value))

    def _operands(self, op: Op) -> tuple[Value, ...]:
        """What a write writes, handles left out."""
        return tuple(v for v in op.inputs if v.op not in self._view.variables)

    def _slots(self, written: Sequence[Value], size: int) -> frozenset[str] | None:
        """The variables that an update goes through besides its weight, by key; None of too many.

        That is whatever the values written to the weight depend on that is not trained and is
        written in this step from the batch, and so on from there. What has one element is no slot
        of a larger weight: it scales a loss.
        """
        found: set[str] = set()
        stack = list(written)
        while stack:
            states = self._states.get(stack.pop().op, frozenset())
            for key in states - found:
                if len(found) >= MOST_STATES:
                    return None
                if self._sizes[key] == 1 and size != 1:
                    continue
                found.add(key)
                for write in self._dominators.writes[key]:
                    stack += self._operands(write)
        return frozenset(found)
