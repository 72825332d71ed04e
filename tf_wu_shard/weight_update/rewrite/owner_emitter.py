"""Leaves an update to one replica, its owner, and gives all others what it computes.

The owner's copy of the body stays as it is, but for the gradient, which is summed there alone, and
for the slots, which the owner alone stores. The other copies go. Where something outside looks at
a value of one of them (the norm of a gradient), it is handed the owner's; their weights are
assigned what the owner's weight holds after its last write, and whenever others read it before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import num_written
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.weight_update.analysis.owned_updates import written
from tf_wu_shard.weight_update.analysis.types import BodyOp, UpdatedVariable, WeightUpdate
from tf_wu_shard.weight_update.rewrite.emission import Emission


class OwnerEmitter:
    """Leaves one update to its owner."""

    def __init__(self, emission: Emission, update: WeightUpdate, owner: int) -> None:
        """Prepares to emit.

        Args:
            emission: Where to emit.
            update: The update, a whole one.
            owner: The replica that does it.
        """
        self._view = emission.view
        self._emission = emission
        self._edit = emission.edit
        self._update = update
        self._owner = owner
        self._peers = [r for r in range(len(update.devices)) if r != owner]
        self._weights = {w.key for w in update.weights}
        # Values of the owner's, with what each replica gets of them.
        self._received: dict[Value, list[Value]] = {}
        kept = {op.ops[owner] for op in update.body}
        # A read of a weight stays with its replica: it may be the forward pass that looks at it.
        self._gone = {
            replica: {
                op.ops[replica]: op
                for op in update.body
                if op.ops[replica] not in kept and not self._reads_weight(op)
            }
            for replica in self._peers
        }

    def replace_gradient(self, key: int, total: Value) -> None:
        """Lets all that still looks at a reduced gradient look at the owner's sum.

        Args:
            key: The reduction.
            total: On the owner, the sum, a vector.
        """
        shaped: dict[tuple[int, ...], Value] = {}
        at = self._at(self._owner, self._update.name, "reduce/gradient")
        for replica in range(len(self._update.devices)):
            for name in self._edit.names.of(key, replica):
                if not self._is_looked_at(name, replica):
                    continue
                shape = self._view.shape(name)
                assert shape is not None, f"a reduced gradient has no static shape: {name}"
                if shape not in shaped:
                    shaped[shape] = at.reshape(total, shape, "")
                self._edit.replace_value(name, self._on(replica, shaped[shape]))

    def emit(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Takes the other copies away and assigns the owner's weights to theirs.

        Returns:
            For each weight, by replica, the ops that write it now.
        """
        for replica in self._peers:
            for name, op in self._gone[replica].items():
                if not num_written(op.type):
                    self._hand_out(op, replica)
                if self._weights.isdisjoint(written(op)):
                    self._edit.replace_ops({name: [op.ops[self._owner]]})
        found = {weight.key: self._assign(weight) for weight in self._update.weights}
        for slot in self._update.slots:
            for replica in self._peers:
                # Reads that nobody looks at: what they read is gone.
                values = values_of(self._view, slot.handles[replica]).values
                idle = [read.name for value in values for read in value.whole_reads]
                gone = self._gone[replica]
                self._edit.replace_ops({name: [] for name in idle if name not in gone})
        return found

    def _at(self, replica: int, variable: str, what: str) -> Emitter:
        return self._emission.at(self._update.devices[replica], variable, what)

    def _reads_weight(self, op: BodyOp) -> bool:
        return op.type == READ and op.variable in self._weights

    def _is_looked_at(self, value: Value, replica: int) -> bool:
        """Whether an op that stays reads a value, or the step returns it."""
        gone = self._gone.get(replica, {})
        return value in self._view.outputs or any(
            op.name not in gone for op, _ in self._view.consumers(value)
        )

    def _hand_out(self, op: BodyOp, replica: int) -> None:
        """Lets what stays of a replica's copy look at the owner's results of an op."""
        for value in self._view.results(op.ops[replica]):
            if self._is_looked_at(value, replica):
                own = Value(op.ops[self._owner], value.index)
                self._edit.replace_value(value, self._on(replica, own))

    def _on(self, replica: int, value: Value) -> Value:
        """What a replica gets of a value of the owner's."""
        if replica == self._owner:
            return value
        if value not in self._received:
            at = self._at(self._owner, self._update.name, "broadcast")
            self._received[value] = self._emission.uneven.broadcast_from(at, value)
        return self._received[value][replica]

    def _assign(self, weight: UpdatedVariable) -> tuple[tuple[str, ...], ...]:
        """Assigns each version of the owner's to the other replicas' components."""
        own = [op for op in self._update.body if weight.key in written(op)]
        writes = [[op.ops[self._owner] for op in own] for _ in self._update.devices]
        for replica in self._peers:
            writes[replica] = []
        for first, last in zip((0, *weight.versions), weight.versions, strict=False):
            version = own[first:last]
            value = self._broadcast(weight, version[-1].ops[self._owner], own[last:])
            for replica in self._peers:
                before = writes[replica][-1:]
                assign = self._assign_version(weight, version, replica, value, before)
                writes[replica].append(assign)
        return tuple(map(tuple, writes))

    def _broadcast(self, weight: UpdatedVariable, write: str, later: Sequence[BodyOp]) -> Value:
        """What the owner's weight holds after a write, and before its later ones."""
        at, handle = self._at(self._owner, weight.key, "broadcast"), weight.handles[self._owner]
        value = at.op(READ, [Value(handle)], "", controls=[write], dtype=weight.dtype)
        if later:
            # It stands for the owner's reads, for which the next write waits.
            reads = values_of(self._view, handle).made_by(write).whole_reads
            self._edit.replace_ops({read.name: [value.op] for read in reads})
            for read in reads:
                self._edit.replace_value(Value(read.name), value)
        return value

    def _assign_version(
        self,
        weight: UpdatedVariable,
        version: Sequence[BodyOp],
        replica: int,
        value: Value,
        before: Sequence[str],
    ) -> str:
        """Assigns one version to one component, after the assignments `before`.

        Args:
            weight: The weight.
            version: The writes that make the version.
            replica: Whose component.
            value: What the owner holds then.
            before: The assignment of the version before.
        """
        old = {op.ops[replica] for op in version}
        # One assignment takes the place of all old writes: it would wait for the reads between
        # them, and they for it. None but the body looks at what they read.
        values = values_of(self._view, weight.handles[replica])
        passing = (values.made_by(op.ops[replica]) for op in version[:-1])
        between = {read.name for value in passing for read in value.reads}
        waits = {c for name in old for c in self._view.ops[name].controls}
        assign = self._at(replica, weight.key, "assign").op(
            "AssignVariableOp",
            [Value(weight.handles[replica]), self._on(replica, value)],
            "",
            controls=[*(waits - old - between), *before],
        )
        self._edit.replace_ops({name: [] for name in between | old})
        self._edit.replace_ops({version[-1].ops[replica]: [assign.op]})
        return assign.op
