"""Emits one replica's copy of an update that a sparse gradient feeds, on that replica's rows.

Slots are tables of the shard's rows, read, written and scattered into in place. A weight of which
the update touches no rows but those looked up is not cut at all: each replica computes what is to
be scattered into its rows, and all replicas scatter what all of them computed. That moves as much
as the gradient, where an all-gather moves the table. A weight that changes as a whole is cut and
gathered as any other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds import row_exchange
from tf_wu_shard.grounds.scratch import scratch_variable
from tf_wu_shard.layout import RowLayout
from tf_wu_shard.rules.sparse import READ_ROWS
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.weight_update.analysis.row_body import weights_by_rows
from tf_wu_shard.weight_update.analysis.types import BodyOp, Operand, OperandKind
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter

_UPDATE = "ResourceScatterUpdate"


@dataclasses.dataclass(frozen=True)
class RowWrite:
    """What a replica has for some rows of a weight.

    Attributes:
        type: The scatter that takes it.
        rows: The rows' numbers within the shard.
        values: A row for each.
    """

    type: str
    rows: Value
    values: Value


class RowEmitter(BodyEmitter):
    """Emits the body of one update of some rows for one replica.

    Attributes:
        row_writes: For each weight that is not cut, what is to be scattered into it, write by
            write.
        places: For each list of entries whose order is known, the places of the replica's own
            among all, int64.
        gathered: For each op whose result is looked at by others, by its old op, the replica's
            rows of it.
        results: For each condition, by its position in the body, what the replica has of its
            results.
    """

    layout: RowLayout

    def __init__(self, *args: Any, places: Mapping[str, Value]) -> None:
        """Prepares to emit.

        Args:
            *args: As `BodyEmitter` takes them.
            places: For each gradient, by its list of entries, the places of the replica's own
                among all.
        """
        super().__init__(*args)
        self._by_rows = weights_by_rows(self.update)
        self.row_writes: dict[str, list[RowWrite]] = {}
        self.places: dict[str, Value] = {**places}
        self.gathered: dict[str, Value] = {}
        self.results: dict[int, Sequence[Value]] = {}

    def finish(self) -> None:
        """Hands the weights that are cut back as vectors, after every op was emitted."""
        for versions in self.versions.values():
            for version in versions:
                if version.shard is not None:
                    version.shard = self._at.flat(version.shard, "flat")

    def operand(self, op: BodyOp, number: int) -> Value:
        """An operand of an op of the body as it is on this replica's rows."""
        return self._local(op, op.operands[number])

    def put_results(self, op: BodyOp, results: Sequence[Value], instead: str) -> None:
        """Takes the results of a condition, which are emitted for all replicas together.

        Args:
            op: The condition, the next op of the body.
            results: What this replica has of each.
            instead: What to wait for in place of the old op.
        """
        self.results[len(self._locals)] = results
        self._locals.append(results[0])
        self.emitted[op.ops[self._replica]] = [instead]

    def _slice(self, at: Emitter, value: Value, shape: tuple[int, ...]) -> Value:
        return self._rows_of(at, value, self.layout.shape)

    def _rows_of(self, at: Emitter, value: Value, shape: tuple[int, ...]) -> Value:
        """The replica's rows of a tensor of `shape`, which has as many rows as the table."""
        start, stop = self.layout.rows(self._shard)
        row = math.prod(shape[1:])
        vector = at.run(at.flat(value, "flat"), start * row, stop * row, "")
        return at.reshape(vector, (stop - start, *shape[1:]), "rows")

    def _local(self, op: BodyOp, operand: Operand) -> Value:
        if operand.kind is OperandKind.SCALAR:
            return operand.values[self._replica]
        if operand.kind is OperandKind.SLICE:
            value = operand.values[self._replica]
            at = self._in_place_of(value.op).within("slice")
            return self._rows_of(at, value, operand.shape)
        if operand.kind is OperandKind.BODY and operand.index in self.results:
            return self.results[operand.index][operand.output]
        local = super()._local(op, operand)
        return Value(local.op, operand.output) if operand.output else local

    def _compute(self, op: BodyOp) -> Value | None:
        if op.type in WRITES:
            (self._apply_to_rows if WRITES[op.type].is_fused else self._scatter)(op)
            return None
        if op.type == READ_ROWS:
            return self._read_rows(op)
        local = super()._compute(op)
        if op.gathered and local is not None:
            self.gathered[op.ops[self._replica]] = local
        return local

    def _scatter(self, op: BodyOp) -> None:
        key, name = op.variable, op.ops[self._replica]
        node = self._view.ops[name].node
        rows, values = (self._local(op, operand) for operand in op.operands[1:3])
        if key in self._shard_handles:
            local = self._in_place_of(name).like(
                node,
                [self._shard_handles[key][self._replica], rows, values],
                "",
                controls=self._before(key, name, writes=True),
            )
            self._order.after(key, local.op, writes=True)
            self._stands_for(name, local)
            return
        self._write_rows(key, name, RowWrite(op.type, rows, values))

    def _write_rows(self, key: str, write: str, written: RowWrite) -> None:
        """Writes some rows of a weight: later and everywhere, or into the shard's value."""
        if key in self._by_rows:
            self.row_writes.setdefault(key, []).append(written)
            self._note_write(key, write)
            return
        present = self._present(key, write)
        at, scatter = self._in_place_of(write), WRITES[written.type].on_values
        assert scatter is not None, f"{written.type} is no scatter"
        column = at.reshape(written.rows, (-1, 1), "column")
        changed = at.op(scatter, [present, column, written.values], scatter)
        self._replace_weight(key, write, changed)

    def _apply_to_rows(self, op: BodyOp) -> None:
        """A fused update of some rows: on variables that hold them and live for this step."""
        name = op.ops[self._replica]
        fused, node = WRITES[op.type], self._view.ops[name].node
        assert fused.rows is not None, f"{op.type} writes no rows"
        rows = self._local(op, op.operands[fused.rows])
        keys = [operand.variable for operand in op.operands[: fused.num_handles]]
        held = [self._rows_in_scratch(key, name, rows) for key in keys]
        others = [self._local(op, operand) for operand in op.operands[fused.num_handles :]]
        others[fused.rows - fused.num_handles] = self._numbered(rows)
        at = self._in_place_of(name)
        applied = at.like(
            node,
            [*(handle for handle, _ in held), *others],
            "",
            controls=[*self._external_controls(name), *(filled for _, filled in held)],
        )
        self._stands_for(name, applied)
        for key, (handle, _) in zip(keys, held, strict=True):
            new = self._read_of(at, key, handle, [applied.op])
            if key not in self._shard_handles:
                self._write_rows(key, name, RowWrite(_UPDATE, rows, new))
                continue
            shard = self._shard_handles[key][self._replica]
            written = at.op(_UPDATE, [shard, rows, new], _UPDATE)
            self._order.after(key, written.op, writes=True)
            self.emitted[name].append(written.op)

    def _read_rows(self, op: BodyOp) -> Value:
        """Rows of one of the update's variables, as the writes before have left it."""
        key, name = op.variable, op.ops[self._replica]
        read = self._rows_at(key, name, self._local(op, op.operands[1]), writes=False)
        if key in self._shard_handles:
            self._order.after(key, read.op, writes=False)
        return self._stands_for(name, read)

    def _rows_in_scratch(self, key: str, write: str, rows: Value) -> tuple[Value, str]:
        """A variable that holds some rows of another during this step."""
        held = self._rows_at(key, write, rows, writes=True)
        at = self._in_place_of(write).within("rows")
        return scratch_variable(at, held, (-1, *self.layout.shape[1:]))

    def _rows_at(self, key: str, name: str, rows: Value, *, writes: bool) -> Value:
        """Some rows of a variable at the place of the old op `name`, which may write it."""
        variable = self._variables[key]
        handle, controls = Value(variable.handles[self._replica]), self._external_controls(name)
        at = self._in_place_of(name)
        if key in self._shard_handles:
            handle = self._shard_handles[key][self._replica]
            controls = self._before(key, name, writes=writes)
        elif key in self._by_rows:
            rows = row_exchange.rows_of_table(at.within("own"), rows, self.layout, self._shard)
        else:
            return row_exchange.picked(at, self._present(key, name), rows, "GatherV2")
        dtype = variable.dtype
        return at.op(READ_ROWS, [handle, rows], READ_ROWS, controls=controls, dtype=dtype)

    def _numbered(self, rows: Value) -> Value:
        """0, 1, 2, ... for as many rows."""
        dtype = self._at.dtype(rows)
        count = self._at.op("Size", [rows], "Size", out_type=dtype)
        first, step = self._at.constant(0, dtype), self._at.constant(1, dtype)
        return self._at.op("Range", [first, count, step], "Range")
