"""Builds the single-program body of an update that a sparse gradient feeds.

As any other body; but it is cut at whole rows, and what each replica sees of the gradient are the
entries that name its rows.
"""

from __future__ import annotations

import dataclasses

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.sparse import READ_ROWS
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import num_written, writes_rows
from tf_wu_shard.step.variable_values import VariableValues
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.external_reductions import sums_over_gradients
from tf_wu_shard.weight_update.analysis.part_wise_writes import refuse_part_wise
from tf_wu_shard.weight_update.analysis.row_slice import RowSlice
from tf_wu_shard.weight_update.analysis.types import BodyOp, Operand, OperandKind, WeightUpdate
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice
from tf_wu_shard.weight_update.analysis.updated_variables import look_from_outside


class RowBodyBuilder(BodyBuilder):
    """Builds bodies of updates of some rows."""

    _slice_type = RowSlice

    def _check_part_wise(self, touching: dict[str, list[VariableValues]]) -> Refusal | None:
        return refuse_part_wise(touching)

    def _external_reductions(self, keys: tuple[int, ...]) -> list[list[Op]]:
        values = [key for key in keys if self._graph.reductions[key].gathered is Gathered.VALUES]
        return self._alike(
            [
                sums_over_gradients(self._graph, values, replica, rows=True)
                for replica in range(len(self._devices))
            ]
        )

    def _slice(
        self,
        keys: tuple[int, ...],
        touching: dict[str, list[VariableValues]],
        sums: list[Op],
        of_whole_weights: frozenset[str],
    ) -> UpdateSlice | Refusal:
        found = super()._slice(keys, touching, sums, of_whole_weights)
        assert isinstance(found, RowSlice), "it is of the builder's type"
        return found.prepare(self._graph.reductions) or found

    def _only_body_looks(
        self, slice_: UpdateSlice, keys: tuple[int, ...], body: set[str]
    ) -> Refusal | None:
        assert isinstance(slice_, RowSlice), "it was made by _slice"
        # The shape of the table is known everywhere.
        keys = tuple(k for k in keys if self._graph.reductions[k].gathered is not Gathered.SHAPE)
        for replica in range(len(self._devices)):
            values = [v for key in keys for v in self._names.of(key, replica)]
            for op in slice_.body:
                for result in slice_.results(op):
                    value = Value(self._matcher.partner(replica, op.name), result.index)
                    if not slice_.may_be_gathered(result):
                        values.append(value)
                    elif look_from_outside(self._view, [value], body) is not None:
                        slice_.gathered.add(op.name)
            refusal = look_from_outside(self._view, values, body)
            if refusal is not None:
                return refusal
        return None

    def _body_op(self, slice_: UpdateSlice, op: Op, numbers: dict[str, int]) -> BodyOp:
        assert isinstance(slice_, RowSlice), "it was made by _slice"
        found = super()._body_op(slice_, op, numbers)
        branch, gathered = slice_.branches.get(op.name), op.name in slice_.gathered
        return dataclasses.replace(found, branch=branch, gathered=gathered)

    def _operand(
        self, slice_: UpdateSlice, op: Op, value: Value, numbers: dict[str, int]
    ) -> Operand:
        assert isinstance(slice_, RowSlice), "it was made by _slice"
        view, known = self._view, self._handle_or_gradient(slice_, value)
        if known is not None:
            return known
        if slice_.placement(value) is not None:
            source = slice_.source(value)
            if slice_.is_gradient(source):
                return Operand(OperandKind.GRADIENT, index=self._names[source][0])
            return Operand(OperandKind.BODY, index=numbers[source.op], output=source.index)
        values = tuple(self._matcher.value_on(r, value) for r in range(len(self._devices)))
        kind = OperandKind.SLICE if slice_.is_slice(op, value) else OperandKind.SCALAR
        return Operand(kind, values=values, shape=view.shape(value) or ())


def weights_by_rows(update: WeightUpdate) -> frozenset[str]:
    """The weights of which an update changes only the rows that its entries name.

    Each write is a version of its own, and the update does not read what it wrote last: then
    replicas need to exchange no more than these rows.
    """
    touching: dict[str, list[str]] = {weight.key: [] for weight in update.weights}
    for op in update.body:
        count = 1 if op.type in (READ, READ_ROWS) else num_written(op.type)
        for key in {o.variable for o in op.operands[:count]} & touching.keys():
            touching[key].append(op.type)
    found = set()
    for weight in update.weights:
        types = touching[weight.key]
        writes = [t for t in types if t not in (READ, READ_ROWS)]
        alone = len(writes) == max(1, len(weight.versions))
        if alone and all(writes_rows(t) for t in writes) and types[-1] in writes:
            found.add(weight.key)
    return frozenset(found)
