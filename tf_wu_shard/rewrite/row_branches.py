"""Emits a condition whose one branch each replica does on its own rows, the other one on the whole.

Nothing branches that did not branch before. The branch on rows is called by every replica. The old
condition is kept once, for all replicas: where its other branch is taken it gets the whole table
and all entries, else tensors of no rows, which cost nothing. What a replica goes on with is its
part of the one or the other, and of the two lists one is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tf_wu_shard.analysis.row_lies import Lies, RowBranch, What
from tf_wu_shard.analysis.types import BodyOp, OperandKind
from tf_wu_shard.dialects import plain_ops, row_exchange
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value, attribute_in
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rewrite.names import scope_of
from tf_wu_shard.rewrite.row_emitter import RowEmitter

_INT64 = 9


def emit_branch(
    view: GraphView,
    builder: GraphBuilder,
    emitters: Sequence[RowEmitter],
    op: BodyOp,
    branch: RowBranch,
) -> dict[Value, Value]:
    """Emits a condition for all replicas.

    Args:
        view: The old graph.
        builder: Where to emit.
        emitters: Per replica, its emitter, which is to emit `op` next.
        op: The condition.
        branch: How its branches are done.

    Returns:
        What takes the place of its results that the rest of the graph may look at.
    """
    emission = _Branch(view, builder, emitters, op, branch)
    emission.emit()
    device = emitters[0].update.devices[0]
    shape = list(emitters[0].layout.shape)
    return {
        Value(name, number): builder.constant(
            shape, device=device, dtype=view.dtype(Value(name, number))
        )
        for number, lies in enumerate(branch.results)
        for name in op.ops
        if lies.what is What.TABLE_SHAPE
    }


class _Branch:
    def __init__(
        self,
        view: GraphView,
        builder: GraphBuilder,
        emitters: Sequence[RowEmitter],
        op: BodyOp,
        branch: RowBranch,
    ) -> None:
        self._view = view
        self._builder = builder
        self._emitters = emitters
        self._op = op
        self._branch = branch
        self._devices = emitters[0].update.devices
        self._layout = emitters[0].layout
        self._scope = scope_of(emitters[0].update.name, "branch")
        self._node = view.ops[op.ops[0]].node
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
                chosen = self._builder.like(
                    node,
                    [condition, *operands[replica]],
                    name=f"{self._scope}/{self._op.type}",
                    device=self._devices[replica],
                )
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
        name, device = f"{self._scope}/whole_taken", self._devices[replica]
        return self._builder.op("LogicalNot", [condition], name=name, device=device)

    def _called(self, operands: Sequence[Value], replica: int) -> Value:
        """The branch that is done on rows, on a replica's."""
        name, device = f"{self._scope}/on_rows", self._devices[replica]
        called = self._builder.op("PartitionedCall", operands, name=name, device=device)
        attributes: Any = self._builder.nodes[-1].attr
        for key in ("Tin", "Tout"):
            attributes[key].CopyFrom(attribute_in(self._node.attr, key))
        attributes["f"].CopyFrom(attribute_in(self._node.attr, self._branch.local))
        return called

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
        name, device = f"{self._scope}/on_the_whole", self._devices[0]
        return self._builder.like(self._node, [condition, *together], name=name, device=device)

    def _together(self, own: Sequence[Value], number: int) -> Value:
        """One operand as the whole table's, or of no rows."""
        lies, operand = self._branch.operands[number], self._op.operands[number + 1]
        if operand.kind in (OperandKind.SLICE, OperandKind.SCALAR):
            # It is outside, whole as it is.
            return operand.values[0]
        assert lies is not None, "it depends on the shard"
        old = self._view.ops[self._op.ops[0]].inputs[number + 1]
        dtype, scope = self._view.dtype(old), f"{self._scope}/whole"
        if lies.what in (What.TABLE_SHAPE, What.NUM_ROWS):
            shape = self._layout.shape
            value: Any = list(shape) if lies.what is What.TABLE_SHAPE else shape[0]
            return self._builder.constant(value, device=self._devices[0], dtype=dtype)
        if lies.what is What.ROWS:
            own = [self._rows_of_table(rows, dtype, r) for r, rows in enumerate(own)]
        held = [self._kept(v, lies, dtype, r, whole=True) for r, v in enumerate(own)]
        joined = plain_ops.joined(self._builder, held, dtype, self._devices[0], scope)
        if lies.what is What.TABLE:
            return joined
        order = self._order(lies.entries)
        return row_exchange.picked(
            *(self._builder, joined, order, dtype, _INT64, self._devices[0]), f"{scope}/in_order"
        )

    def _rows_of_table(self, rows: Value, dtype: int, replica: int) -> Value:
        own, device = {replica: rows}, [self._devices[replica]]
        return row_exchange.all_rows(self._builder, own, self._layout, dtype, device, self._scope)

    def _order(self, entries: str) -> Value:
        """For the i-th of all entries, its place among those of the shards, one after the other."""
        places = [
            self._kept(e.places[entries], Lies(What.ROWS), _INT64, r, whole=True)
            for r, e in enumerate(self._emitters)
        ]
        name, device, types = f"{self._scope}/order", self._devices[0], {"T": _INT64}
        joined = plain_ops.joined(self._builder, places, _INT64, device, f"{name}/places")
        inverse = self._builder.op(
            "InvertPermutation", [joined], name=name, device=device, types=types
        )
        return inverse

    def _kept(self, value: Value, lies: Lies, dtype: int, replica: int, *, whole: bool) -> Value:
        """A replica's rows where the branch on the `whole`, or the other, is taken; else none."""
        device, scope = self._devices[replica], f"{self._scope}/kept"
        behind = [-1] * len(lies.shape[1:] if lies.what is What.TABLE else lies.shape)
        every = self._builder.constant([-1, *behind], device=device)
        none = self._builder.constant([0, *behind], device=device)
        begin = self._builder.constant([0, *(0 for _ in behind)], device=device)
        sizes = (every, none) if whole else (none, every)
        size = self._builder.op(
            "SelectV2",
            [self._whole_taken[replica], *sizes],
            name=f"{scope}/size",
            device=device,
            types={"T": 3},
        )
        types = {"T": dtype, "Index": 3}
        return self._builder.op(
            "Slice", [value, begin, size], name=scope, device=device, types=types
        )

    def _joined(
        self, whole: Value, own: Value, emitter: RowEmitter, replica: int
    ) -> Sequence[Value]:
        """A replica's results: its part of the one branch's and what the other made of its rows."""
        device = self._devices[replica]
        kinds = [lies.what for lies in self._branch.results]
        number = kinds.index(What.ROWS)
        types = [self._view.dtype(Value(self._op.ops[0], i)) for i in range(len(kinds))]
        places, rows = row_exchange.own_entries(
            self._builder,
            Value(whole.op, number),
            self._layout,
            types[number],
            replica,
            device,
            self._scope,
        )
        before = next(
            lies.entries for lies in self._branch.operands if lies is not None and lies.entries
        )
        emitter.places[self._op.ops[0]] = self._one_list(
            places, emitter.places[before], Lies(What.ROWS), _INT64, replica
        )
        results = []
        for i, lies in enumerate(self._branch.results):
            value = Value(own.op, i)
            if lies.what is What.TABLE_SHAPE:
                shape = list(self._layout.shard_shape(replica))
                value = self._builder.constant(shape, device=device, dtype=types[i])
            elif lies.what is What.ROWS:
                value = self._one_list(rows, value, lies, types[i], replica)
            else:
                picked = row_exchange.picked(
                    *(self._builder, Value(whole.op, i), places, types[i], _INT64, device),
                    f"{self._scope}/own_values",
                )
                value = self._one_list(picked, value, lies, types[i], replica)
            results.append(value)
        return results

    def _one_list(
        self, of_whole: Value, of_rows: Value, lies: Lies, dtype: int, replica: int
    ) -> Value:
        """The own entries of the branch that was taken; of the whole's there are none if not."""
        kept = self._kept(of_rows, lies, dtype, replica, whole=False)
        device, name = self._devices[replica], f"{self._scope}/own"
        return plain_ops.joined(self._builder, [of_whole, kept], dtype, device, name)
