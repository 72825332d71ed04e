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

from tf_wu_shard.analysis.row_body import weights_by_rows
from tf_wu_shard.analysis.types import BodyOp, Operand, OperandKind
from tf_wu_shard.dialects import plain_ops, row_exchange
from tf_wu_shard.dialects.scratch import scratch_variable
from tf_wu_shard.dialects.table_layout import TableLayout
from tf_wu_shard.graph.op import Value, attribute_in
from tf_wu_shard.rewrite.body_emitter import BodyEmitter
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.sparse import READ_ROWS, SCATTERS, SEGMENT_SUM, SPARSE_FUSED, UNIQUE
from tf_wu_shard.rules.variables import READ

_UPDATE = "ResourceScatterUpdate"


@dataclasses.dataclass(frozen=True)
class RowWrite:
    """What a replica has for some rows of a weight.

    Attributes:
        type: The scatter that takes it.
        rows: The rows' numbers within the shard.
        values: A row for each.
        rows_dtype: The element type of `rows`, as a DataType number.
    """

    type: str
    rows: Value
    values: Value
    rows_dtype: int


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

    layout: TableLayout

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
        for key, versions in self.versions.items():
            dtype = self._variables[key].dtype
            for version in versions:
                if version.shard is not None:
                    name = f"{self._scope}/flat"
                    version.shard = plain_ops.flat(
                        self._builder, version.shard, dtype, self._device, name
                    )

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

    def _slice(self, value: Value, shape: tuple[int, ...], dtype: int, name: str) -> Value:
        return self._rows_of(value, self.layout.shape, dtype, name)

    def _rows_of(self, value: Value, shape: tuple[int, ...], dtype: int, name: str) -> Value:
        """The replica's rows of a tensor of `shape`, which has as many rows as the table."""
        start, stop = self.layout.rows(self._replica)
        row = math.prod(shape[1:])
        vector = plain_ops.flat(self._builder, value, dtype, self._device, f"{name}/flat")
        bounds = (start * row, stop * row)
        vector = plain_ops.run(self._builder, vector, *bounds, dtype, self._device, name)
        own = (stop - start, *shape[1:])
        return plain_ops.reshape(self._builder, vector, own, dtype, self._device, f"{name}/rows")

    def _local(self, op: BodyOp, operand: Operand) -> Value:
        if operand.kind is OperandKind.SCALAR:
            return operand.values[self._replica]
        if operand.kind is OperandKind.SLICE:
            value = operand.values[self._replica]
            dtype = self._view.dtype(value)
            return self._rows_of(value, operand.shape, dtype, f"{self._scope}/slice")
        if operand.kind is OperandKind.BODY and operand.index in self.results:
            return self.results[operand.index][operand.output]
        local = super()._local(op, operand)
        return Value(local.op, operand.output) if operand.output else local

    def _compute(self, op: BodyOp) -> Value | None:
        if op.type in SCATTERS:
            self._scatter(op)
            return None
        if op.type in SPARSE_FUSED:
            self._apply_to_rows(op)
            return None
        name = op.ops[self._replica]
        attributes = self._view.ops[name].node.attr
        if op.type == READ_ROWS:
            return self._read_rows(op)
        if op.type == SEGMENT_SUM and not self._in_places(op.operands[1]):
            local: Value | None = self._segment_sum(op, attributes["Tnumsegments"].type)
        elif family_of(op.type) is Family.RELABEL:
            local = self._reshape(op, attributes["T"].type)
        else:
            local = super()._compute(op)
        if op.gathered and local is not None:
            self.gathered[name] = local
        return local

    def _reshape(self, op: BodyOp, dtype: int) -> Value:
        """Each of the shard's rows in another shape."""
        name = op.ops[self._replica]
        shape = self._view.shape(Value(name))
        assert shape is not None, "the analysis has seen it"
        start, stop = self.layout.rows(self._replica)
        own, rows = self._local(op, op.operands[0]), (stop - start, *shape[1:])
        local = plain_ops.reshape(self._builder, own, rows, dtype, self._device, self._name(op))
        self.emitted[name] = [local.op]
        return local

    def _in_places(self, operand: Operand) -> bool:
        """Whether an operand is the entries' places in a list without repetitions."""
        body = self.update.body
        return operand.kind is OperandKind.BODY and body[operand.index].type == UNIQUE

    def _num_rows(self, dtype: int) -> Value:
        count = self.layout.shard_shape(self._replica)[0]
        return self._builder.constant(count, device=self._device, dtype=dtype)

    def _segment_sum(self, op: BodyOp, count_dtype: int) -> Value:
        """The entries of each of the shard's rows, added up."""
        name = op.ops[self._replica]
        operands = [self._local(op, operand) for operand in op.operands[:2]]
        local = self._builder.like(
            self._view.ops[name].node,
            [*operands, self._num_rows(count_dtype)],
            name=self._name(op),
            device=self._device,
            controls=self._external_controls(name),
        )
        self.emitted[name] = [local.op]
        return local

    def _scatter(self, op: BodyOp) -> None:
        key, name = op.variable, op.ops[self._replica]
        node = self._view.ops[name].node
        rows, values = (self._local(op, operand) for operand in op.operands[1:3])
        rows_dtype = attribute_in(node.attr, "Tindices").type
        if key in self._shard_handles:
            local = self._builder.like(
                node,
                [self._shard_handles[key][self._replica], rows, values],
                name=self._name(op),
                device=self._device,
                controls=self._before(key, name, writes=True),
            )
            self._order.after(key, local.op, writes=True)
            self.emitted[name] = [local.op]
            return
        self._write_rows(key, name, RowWrite(op.type, rows, values, rows_dtype))

    def _write_rows(self, key: str, write: str, written: RowWrite) -> None:
        """Writes some rows of a weight: later and everywhere, or into the shard's value."""
        if key in self._by_rows:
            self.row_writes.setdefault(key, []).append(written)
            self._note_write(key, write)
            return
        present = self._present(key, write)
        where: dict[str, Any] = {"device": self._device}
        column = plain_ops.reshape(
            *(self._builder, written.rows, (-1, 1), written.rows_dtype, self._device),
            f"{self._scope}/column",
        )
        scatter = SCATTERS[written.type]
        types = {"T": self._variables[key].dtype, "Tindices": written.rows_dtype}
        name = f"{self._scope}/{scatter}"
        inputs = [present, column, written.values]
        changed = self._builder.op(scatter, inputs, name=name, types=types, **where)
        self._replace_weight(key, write, changed)

    def _apply_to_rows(self, op: BodyOp) -> None:
        """A fused update of some rows: on variables that hold them and live for this step."""
        name = op.ops[self._replica]
        fused, node = SPARSE_FUSED[op.type], self._view.ops[name].node
        rows_dtype = attribute_in(node.attr, "Tindices").type
        rows = self._local(op, op.operands[fused.rows])
        keys = [operand.variable for operand in op.operands[: fused.num_handles]]
        held = [self._rows_in_scratch(key, name, rows, rows_dtype) for key in keys]
        others = [self._local(op, operand) for operand in op.operands[fused.num_handles :]]
        others[fused.rows - fused.num_handles] = self._numbered(rows, rows_dtype)
        applied = self._builder.like(
            node,
            [*(handle for handle, _ in held), *others],
            name=self._name(op),
            device=self._device,
            controls=[*self._external_controls(name), *(filled for _, filled in held)],
        )
        self.emitted[name] = [applied.op]
        for key, (handle, _) in zip(keys, held, strict=True):
            types = {"dtype": self._variables[key].dtype}
            where: dict[str, Any] = {"name": f"{self._scope}/{READ}", "device": self._device}
            new = self._builder.op(READ, [handle], controls=[applied.op], types=types, **where)
            if key not in self._shard_handles:
                self._write_rows(key, name, RowWrite(_UPDATE, rows, new, rows_dtype))
                continue
            written = self._builder.op(
                _UPDATE,
                [self._shard_handles[key][self._replica], rows, new],
                name=f"{self._scope}/{_UPDATE}",
                device=self._device,
                types={**types, "Tindices": rows_dtype},
            )
            self._order.after(key, written.op, writes=True)
            self.emitted[name].append(written.op)

    def _read_rows(self, op: BodyOp) -> Value:
        """Rows of one of the update's variables, as the writes before have left it."""
        key, name = op.variable, op.ops[self._replica]
        rows_dtype = self._view.ops[name].attribute("Tindices").type
        rows = self._local(op, op.operands[1])
        read = self._rows_at(key, name, rows, rows_dtype, writes=False)
        if key in self._shard_handles:
            self._order.after(key, read.op, writes=False)
        self.emitted[name] = [read.op]
        return read

    def _rows_in_scratch(
        self, key: str, write: str, rows: Value, rows_dtype: int
    ) -> tuple[Value, str]:
        """A variable that holds some rows of another during this step."""
        held = self._rows_at(key, write, rows, rows_dtype, writes=True)
        shape, dtype = (-1, *self.layout.shape[1:]), self._variables[key].dtype
        scope = f"{self._scope}/rows"
        return scratch_variable(self._builder, held, shape, dtype, self._device, scope)

    def _rows_at(self, key: str, name: str, rows: Value, rows_dtype: int, *, writes: bool) -> Value:
        """Some rows of a variable at the place of the old op `name`, which may write it."""
        variable = self._variables[key]
        handle, controls = Value(variable.handles[self._replica]), self._external_controls(name)
        if key in self._shard_handles:
            handle = self._shard_handles[key][self._replica]
            controls = self._before(key, name, writes=writes)
        elif key in self._by_rows:
            rows = row_exchange.all_rows(
                self._builder,
                {self._replica: rows},
                self.layout,
                rows_dtype,
                [self._device],
                f"{self._scope}/own",
            )
        else:
            present = self._present(key, name)
            return row_exchange.picked(
                *(self._builder, present, rows, variable.dtype, rows_dtype, self._device),
                f"{self._scope}/GatherV2",
            )
        return self._builder.op(
            READ_ROWS,
            [handle, rows],
            name=f"{self._scope}/{READ_ROWS}",
            device=self._device,
            controls=controls,
            types={"dtype": variable.dtype, "Tindices": rows_dtype},
        )

    def _numbered(self, rows: Value, dtype: int) -> Value:
        """0, 1, 2, ... for as many rows."""
        where: dict[str, Any] = {"device": self._device}
        count = self._builder.op(
            "Size",
            [rows],
            name=f"{self._scope}/Size",
            types={"T": dtype, "out_type": dtype},
            **where,
        )
        first = self._builder.constant(0, dtype=dtype, **where)
        step = self._builder.constant(1, dtype=dtype, **where)
        name, types = f"{self._scope}/Range", {"Tidx": dtype}
        return self._builder.op("Range", [first, count, step], name=name, types=types, **where)
