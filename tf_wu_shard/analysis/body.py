"""Builds the single-program body of one update, or says why there is none.

The body is the backward slice from every write of the update's variables, cut off where values do
not depend on the shard: outside values, the same on every replica, enter as scalars or as whole
tensors to slice. Each body op must be local under the flat cut, and nothing but the body may look
at what it computes.
"""

from __future__ import annotations

import math

from tf_wu_shard.analysis.accesses import VariableAccess, accesses, check_order
from tf_wu_shard.analysis.gradients import ResultNames
from tf_wu_shard.analysis.replicas import ReplicaMatcher
from tf_wu_shard.analysis.types import (
    BodyOp,
    Operand,
    OperandKind,
    UpdatedVariable,
    WeightUpdate,
)
from tf_wu_shard.graph.view import GraphView, Op, Value
from tf_wu_shard.placement import Placement, Refusal, Replicated, Sharded
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.shapes import source_operands
from tf_wu_shard.rules.variables import READ, WRITES, Access


class BodyBuilder:
    """Builds bodies in one view."""

    def __init__(
        self,
        view: GraphView,
        matcher: ReplicaMatcher,
        names: ResultNames,
        handles: dict[str, dict[int, str]],
        devices: tuple[str, ...],
    ) -> None:
        self._view = view
        self._matcher = matcher
        self._names = names
        self._handles = handles
        self._devices = devices

    def build(self, keys: tuple[int, ...], variables: tuple[str, ...]) -> WeightUpdate | Refusal:
        """Builds the update that writes `variables` from the reductions `keys`.

        Args:
            keys: The reductions that were followed to these variables.
            variables: Keys of all variables that they reach.

        Returns:
            The update, or the first reason against it.
        """
        touching: dict[str, list[list[VariableAccess]]] = {}
        for variable in variables:
            found = self._accesses(variable)
            if isinstance(found, Refusal):
                return found
            touching[variable] = found
        refusal = self._match_writes(touching)
        if refusal is not None:
            return refusal
        slice_ = _Slice(self._view, self._names, keys, touching, self._handles)
        refusal = slice_.place() or self._only_body_looks(slice_, keys)
        if refusal is not None:
            return refusal
        updated = self._updated_variables(slice_, touching)
        if isinstance(updated, Refusal):
            return updated
        return WeightUpdate(updated, keys, self._body(slice_), self._devices)

    def _accesses(self, variable: str) -> list[list[VariableAccess]] | Refusal:
        """Per replica, who touches the variable, if that is known and ordered."""
        per_replica: list[list[VariableAccess]] = []
        for replica in range(len(self._devices)):
            handle = self._handles[variable].get(replica)
            if handle is None:
                return Refusal(variable, f"the step does not touch it on replica {replica}")
            found = accesses(self._view, handle)
            for access in found:
                if access.access is Access.UNKNOWN:
                    return Refusal(
                        access.op.name, f"{access.op.type} takes the handle of {variable}"
                    )
            refusal = check_order(self._view, handle, found)
            if refusal is not None:
                return refusal
            per_replica.append(found)
        return per_replica

    def _match_writes(self, touching: dict[str, list[list[VariableAccess]]]) -> Refusal | None:
        for variable, per_replica in touching.items():
            writes = [[a.op for a in t if not a.access.is_read] for t in per_replica]
            # The copies are matched with the first one; where there is but one, with themselves.
            first_matched = 1 if len(writes) > 1 else 0
            for replica, own in enumerate(writes[first_matched:], start=first_matched):
                if len(own) != len(writes[0]):
                    return Refusal(variable, f"replica {replica} writes it another number of times")
                for first, other in zip(writes[0], own, strict=True):
                    refusal = self._matcher.match(replica, first.name, other.name)
                    if refusal is not None:
                        return refusal
        return None

    def _only_body_looks(self, slice_: _Slice, keys: tuple[int, ...]) -> Refusal | None:
        """Why something outside would miss a value that the body computes, or None."""
        for replica in range(len(self._devices)):
            body = {self._matcher.partner(replica, op.name) for op in slice_.body}
            values = [
                Value(self._matcher.partner(replica, op.name))
                for op in slice_.body
                if op.type != READ and op.type not in WRITES and op.type not in FUSED
            ]
            values += [v for key in keys for v in self._names.of(key, replica)]
            refusal = self._look_from_outside(values, body)
            if refusal is not None:
                return refusal
        return None

    def _look_from_outside(self, values: list[Value], body: set[str]) -> Refusal | None:
        """The first look at one of the values, under whatever name, by none of the body's ops."""
        returned = set(self._view.outputs)
        values = list(values)
        while values:
            value = values.pop()
            if value in returned:
                return Refusal(value.op, "the step returns a value of the update")
            for op, slot in self._view.consumers(value):
                if op.name in body:
                    continue
                if family_of(op.type) is not Family.RELABEL:
                    return Refusal(op.name, f"{op.type} also looks at a value of the update")
                values.append(Value(op.name, slot if op.type == "IdentityN" else 0))
        return None

    def _updated_variables(
        self, slice_: _Slice, touching: dict[str, list[list[VariableAccess]]]
    ) -> tuple[UpdatedVariable, ...] | Refusal:
        seen_outside: set[str] = set()
        casts: dict[str, set[int]] = {}
        for variable, per_replica in touching.items():
            for replica, touches in enumerate(per_replica):
                body = {self._matcher.partner(replica, op.name) for op in slice_.body}
                total = sum(not a.access.is_read for a in touches)
                epoch = 0
                for access in touches:
                    if not access.access.is_read:
                        epoch += 1
                    elif self._read_outside(access.op, body):
                        seen_outside.add(variable)
                        casts.setdefault(variable, set()).update(self._casts(access.op, body))
                        if 0 < epoch < total:
                            return Refusal(
                                access.op.name, f"it reads {variable} between two of its writes"
                            )
        refs = {v: self._view.variables[self._handles[v][0]] for v in touching}
        trainable = {v for v, ref in refs.items() if ref.trainable}
        if not trainable:
            return Refusal(next(iter(touching)), "its update reaches no trainable variable")
        # A weight that the step happens not to read is a weight all the same.
        weights = seen_outside if seen_outside & trainable else seen_outside | trainable
        updated = [
            UpdatedVariable(
                variable,
                tuple(self._handles[variable][r] for r in range(len(self._devices))),
                ref.shape or (),
                ref.dtype,
                is_slot=variable not in weights,
                trainable=ref.trainable,
                read_as=only.pop() if len(only := casts.get(variable, set())) == 1 else ref.dtype,
            )
            for variable, ref in refs.items()
        ]
        updated.sort(key=lambda v: (v.is_slot, v.key not in trainable))
        return tuple(updated)

    def _casts(self, read: Op, body: set[str]) -> set[int]:
        """The element types that a read is cast to outside of the body; 0 for any other use."""
        return {
            op.node.attr["DstT"].type if op.type == "Cast" else 0
            for op, _ in self._view.consumers(Value(read.name))
            if op.name not in body
        }

    def _read_outside(self, read: Op, body: set[str]) -> bool:
        if read.type != READ:
            return True
        return self._look_from_outside([Value(read.name)], body) is not None

    def _body(self, slice_: _Slice) -> tuple[BodyOp, ...]:
        numbers = {op.name: i for i, op in enumerate(slice_.body)}
        return tuple(self._body_op(slice_, op, numbers) for op in slice_.body)

    def _body_op(self, slice_: _Slice, op: Op, numbers: dict[str, int]) -> BodyOp:
        num_replicas = len(self._devices)
        names = tuple(self._matcher.partner(r, op.name) for r in range(num_replicas))
        operands = tuple(self._operand(slice_, op, v, numbers) for v in op.inputs)
        variable = operands[0].variable if operands else ""
        return BodyOp(op.type, names, operands, variable)

    def _operand(self, slice_: _Slice, op: Op, value: Value, numbers: dict[str, int]) -> Operand:
        view = self._view
        if value.op in view.variables:
            return Operand(OperandKind.HANDLE, variable=view.variables[value.op].key)
        if value in self._names:
            return Operand(OperandKind.GRADIENT, index=self._names[value][0])
        placement = slice_.placements[value]
        if isinstance(placement, Sharded):
            return Operand(OperandKind.BODY, index=numbers[slice_.source(value).op])
        values = tuple(self._matcher.value_on(r, value) for r in range(len(self._devices)))
        scalar = math.prod(placement.shape) == 1 and slice_.size != 1
        if op.type in FUSED:
            scalar = value != op.inputs[FUSED[op.type].gradient]
        kind = OperandKind.SCALAR if scalar else OperandKind.SLICE
        return Operand(kind, values=values, shape=placement.shape)


class _Slice:
    """The backward slice from the writes on replica 0, with the placement of every value."""

    def __init__(
        self,
        view: GraphView,
        names: ResultNames,
        keys: tuple[int, ...],
        touching: dict[str, list[list[VariableAccess]]],
        handles: dict[str, dict[int, str]],
    ) -> None:
        self._view = view
        self._names = names
        self._keys = keys
        self._own_handles = {handles[v][0] for v in touching}
        self._writes = [a.op for t in touching.values() for a in t[0] if not a.access.is_read]
        shapes = {view.variables[handles[v][0]].shape for v in touching}
        self.sizes = {math.prod(s or ()) for s in shapes}
        self.size = max(self.sizes)
        self.body: list[Op] = []
        self.placements: dict[Value, Placement] = {}
        self._sources: dict[Value, Value] = {}

    def source(self, value: Value) -> Value:
        """The value that `value` is another name of."""
        return self._sources.get(value, value)

    def place(self) -> Refusal | None:
        """Computes all placements and the body; the reason why that is impossible, or None."""
        if len(self.sizes) != 1:
            return Refusal(self._writes[0].name, "it mixes variables of different sizes")
        for op in sorted(self._ancestors(), key=lambda o: o.position):
            refusal = self._place_op(op)
            if refusal is not None:
                return refusal
        return None

    def _ancestors(self) -> list[Op]:
        """The writes and what they depend on, up to gradients and variables."""
        found: dict[str, Op] = {}
        stack = list({op.name: op for op in self._writes}.values())
        while stack:
            op = stack.pop()
            if op.name in found:
                continue
            found[op.name] = op
            inputs = op.inputs
            if op.type == READ:
                inputs = ()
            for value in inputs:
                if value not in self._names and value.op not in self._view.variables:
                    stack.append(self._view.producer(value))
        return list(found.values())

    def _place_op(self, op: Op) -> Refusal | None:
        if op.type == READ and op.inputs[0].op in self._own_handles:
            ref = self._view.variables[op.inputs[0].op]
            self.placements[Value(op.name)] = Sharded(ref.shape or ())
            self.body.append(op)
            return None
        if op in self._writes:
            self.body.append(op)
            return self._check_write(op)
        operands = [self._placement(v) for v in op.inputs]
        if op.type == "IdentityN":
            self._place_elements(op, operands)
            return None
        if not any(isinstance(o, Sharded) for o in operands):
            return None
        shape = self._view.shape(Value(op.name))
        known = []
        for value, operand in zip(op.inputs, operands, strict=True):
            if operand is None:
                return Refusal(value.op, "the shape of its result is not known when traced")
            known.append(operand)
        outcome = registry.propagate(op.type, op.name, tuple(known), shape)
        if isinstance(outcome, Refusal):
            return outcome
        self.placements[Value(op.name)] = outcome
        if family_of(op.type) is Family.RELABEL:
            first = op.inputs[source_operands(op.type, 0, 1)[0]]
            self._sources[Value(op.name)] = self.source(first)
        else:
            self.body.append(op)
        return None

    def _place_elements(self, op: Op, operands: list[Placement | None]) -> None:
        for i, (value, operand) in enumerate(zip(op.inputs, operands, strict=True)):
            if isinstance(operand, Sharded):
                self.placements[Value(op.name, i)] = operand
                self._sources[Value(op.name, i)] = self.source(value)

    def _placement(self, value: Value) -> Placement | None:
        """Where an operand lies; None where its shape is not known."""
        if value in self._names:
            return Sharded(self._view.shape(value) or ())
        if value not in self.placements:
            shape = self._view.shape(value)
            if shape is None:
                return None
            self.placements[value] = Replicated(shape)
        return self.placements[value]

    def _check_write(self, op: Op) -> Refusal | None:
        """Whether a write's operands are what its shard needs."""
        fused = FUSED.get(op.type)
        first = fused.num_handles if fused else 1
        for value in op.inputs[:first]:
            if value.op not in self._own_handles:
                return Refusal(op.name, "it updates variables that no gradient reaches")
        for slot, value in enumerate(op.inputs[first:], start=first):
            operand = self._placement(value)
            if operand is None:
                return Refusal(value.op, "the shape of its result is not known when traced")
            wants_scalar = fused is not None and slot != fused.gradient
            if wants_scalar and not isinstance(operand, Replicated):
                return Refusal(op.name, f"operand {slot} is not a scalar")
            if not wants_scalar and math.prod(operand.shape) != self.size:
                return Refusal(op.name, f"it writes a value of shape {list(operand.shape)}")
            if value in self._names and self._names[value][0] not in self._keys:
                return Refusal(op.name, "it mixes gradients whose updates are kept apart")
        return None
