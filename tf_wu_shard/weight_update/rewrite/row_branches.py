"""Emits a condition whose one branch each replica does on its own rows, the other one on the whole.

Nothing branches that did not branch before. The branch on rows is called by every replica. The old
condition is kept once, for all replicas: where its other branch is taken it gets the whole table
and all entries, else tensors of no rows, which cost nothing. What a replica goes on with is its
part of the one or the other, and of the two lists one is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tf_wu_shard.graph.op import Value, attribute_in
from tf_wu_shard.grounds import row_exchange
from tf_wu_shard.placement import RowPlacement, What
from tf_wu_shard.weight_update.analysis.types import BodyOp, OperandKind, RowBranch
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.row_emitter import RowEmitter


def emit_branch(
    emission: Emission,
    emitters: Sequence[RowEmitter],
    op: BodyOp,
    branch: RowBranch,
) -> dict[Value, Value]:
    """Emits a condition for all replicas.

    Args:
        emission: Where to emit.
        emitters: Per replica, its emitter, which is to emit `op` next.
        op: The condition.
        branch: How its branches are done.

    Returns:
        What takes the place of its results that the rest of the graph may look at.
    """
    _Branch(emission, emitters, op, branch).emit()
    at = emission.builder.at(emitters[0].update.devices[0], "")
    shape = list(emitters[0].layout.shape)
    return {
        Value(name, number): at.constant(shape, at.dtype(Value(name, number)))
        for number, placement in enumerate(branch.results)
        for name in op.ops
        if placement.what is What.TABLE_SHAPE
    }


class _Branch:
    def __init__(
        self,
        emission: Emission,
        emitters: Sequence[RowEmitter],
        op: BodyOp,
        branch: RowBranch,
    ) -> None:
        self._view = emission.view
        self._entries = emission.entries
        self._shard_of = emission.dialect.shard_of
        self._emitters = emitters
        self._op = op
        self._branch = branch
        update = emitters[0].update
        # Per replica, where to emit.
        at = emission.at("", update.name, "branch")
        self._at = [at.on(device) for device in update.devices]
        self._layout = emitters[0].layout
        self._node = self._view.ops[op.ops[0]].node
        # Per replica, whether the branch on the whole is taken.
        self._whole_taken = [self._taken(r) for r in range(len(emitters))] if branch.whole else []

    def emit(self) -> None:
        """Emits it, and hands each replica's results to its emitter."""
        operands = [
            [emitter.operand(self._op, i + 1) for i in range(len(self._branch.operands))]
            for emitter in self._emitters
        ]
        if not self._branch.whole:
            for replica, emitter in enumerate(self._emitters):
                node = self._view.ops[self._op.ops[replica]].node
                condition = self._op.operands[0].values[replica]
                inputs = [condition, *operands[replica]]
                chosen = self._at[replica].like(node, inputs, self._op.type)
                emitter.put_results(self._op, self._numbered(chosen), chosen.op)
            return
        whole = self._on_the_whole(operands)
        for replica, emitter in enumerate(self._emitters):
            own = self._called(operands[replica], replica)
            emitter.put_results(self._op, self._joined(whole, own, emitter, replica), whole.op)

    def _numbered(self, first: Value) -> list[Value]:
        return [Value(first.op, number) for number in range(len(self._branch.results))]

    def _taken(self, replica: int) -> Value:
        condition = self._op.operands[0].values[replica]
        if self._branch.whole == "then_branch":
            return condition
        return self._at[replica].op("LogicalNot", [condition], "whole_taken")

    def _called(self, operands: Sequence[Value], replica: int) -> Value:
        """The branch that is done on rows, on a replica's."""
        returned = attribute_in(self._node.attr, "Tout")
        function = attribute_in(self._node.attr, self._branch.local)
        at = self._at[replica]
        return at.op("PartitionedCall", operands, "on_rows", Tout=returned, f=function)

    def _on_the_whole(self, operands: Sequence[Sequence[Value]]) -> Value:
        """The old condition, on everything where it takes the branch on the whole, or on no rows.

        Args:
            operands: Per replica, its own rows of each operand.
        """
        condition = self._op.operands[0].values[0]
        together = [
            self._together([own[i] for own in operands], i)
            for i in range(len(self._branch.operands))
        ]
        return self._at[0].like(self._node, [condition, *together], "on_the_whole")

    def _together(self, own: Sequence[Value], number: int) -> Value:
        """One operand as the whole table's, or of no rows."""
        placement, operand = self._branch.operands[number], self._op.operands[number + 1]
        if operand.kind in (OperandKind.SLICE, OperandKind.SCALAR):
            # It is outside, whole as it is.
            return operand.values[0]
        assert placement is not None, "it depends on the shard"
        if placement.what in (What.TABLE_SHAPE, What.NUM_ROWS):
            shape = self._layout.shape
            value: Any = list(shape) if placement.what is What.TABLE_SHAPE else shape[0]
            old = self._view.ops[self._op.ops[0]].inputs[number + 1]
            return self._at[0].constant(value, self._view.dtype(old))
        if placement.what is What.ROWS:
            own = [self._rows_of_table(rows, r) for r, rows in enumerate(own)]
        held = [self._kept(v, placement, r, whole=True) for r, v in enumerate(own)]
        joined = self._gathered("whole", held)
        if placement.what is What.TABLE:
            return joined
        order = self._order(placement.entries)
        return row_exchange.picked(self._at[0], joined, order, "whole/in_order")

    def _rows_of_table(self, rows: Value, replica: int) -> Value:
        at = self._at[replica]
        return row_exchange.rows_of_table(at, rows, self._layout, self._shard_of(replica))

    def _order(self, entries: str) -> Value:
        """For the i-th of all entries, its place among those of the shards, one after the other."""
        places = [
            self._kept(e.places[entries], RowPlacement(What.ROWS), r, whole=True)
            for r, e in enumerate(self._emitters)
        ]
        joined = self._gathered("order/places", places)
        return self._at[0].op("InvertPermutation", [joined], "order")

    def _gathered(self, name: str, own: Sequence[Value]) -> Value:
        """The replicas' lists one after the other, where the old condition stands."""
        return self._entries.gather_entries(self._at[0], {name: own})[name][0]

    def _kept(self, value: Value, placement: RowPlacement, replica: int, *, whole: bool) -> Value:
        """A replica's rows where the branch on the `whole`, or the other, is taken; else none."""
        at = self._at[replica]
        behind = [-1] * len(
            placement.shape[1:] if placement.what is What.TABLE else placement.shape
        )
        every, none = at.constant([-1, *behind]), at.constant([0, *behind])
        begin = at.constant([0, *(0 for _ in behind)])
        sizes = (every, none) if whole else (none, every)
        size = at.op("SelectV2", [self._whole_taken[replica], *sizes], "kept/size")
        return at.op("Slice", [value, begin, size], "kept")

    def _joined(
        self, whole: Value, own: Value, emitter: RowEmitter, replica: int
    ) -> Sequence[Value]:
        """A replica's results: its part of the one branch's and what the other made of its rows."""
        at = self._at[replica]
        number = [p.what for p in self._branch.results].index(What.ROWS)
        named = Value(whole.op, number)
        places, rows = row_exchange.own_entries(at, named, self._layout, self._shard_of(replica))
        before = next(p.entries for p in self._branch.operands if p is not None and p.entries)
        emitter.places[self._op.ops[0]] = self._one_list(
            places, emitter.places[before], RowPlacement(What.ROWS), replica
        )
        results = []
        for i, placement in enumerate(self._branch.results):
            value = Value(own.op, i)
            if placement.what is What.TABLE_SHAPE:
                shape = list(self._layout.shard_shape(self._shard_of(replica)))
                value = at.constant(shape, at.dtype(value))
            elif placement.what is What.ROWS:
                value = self._one_list(rows, value, placement, replica)
            else:
                picked = row_exchange.picked(at, Value(whole.op, i), places, "own_values")
                value = self._one_list(picked, value, placement, replica)
            results.append(value)
        return results

    def _one_list(
        self, of_whole: Value, of_rows: Value, placement: RowPlacement, replica: int
    ) -> Value:
        """The own entries of the branch that was taken; of the whole's there are none if not."""
        kept = self._kept(of_rows, placement, replica, whole=False)
        return self._at[replica].concat([of_whole, kept], "own")
