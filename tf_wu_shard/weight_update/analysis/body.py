"""Builds the single-program body of one update, or says why there is none.

The body is the backward slice from every write of the update's variables, cut off where values do
not depend on the shard: outside values, the same on every replica, enter as scalars or as whole
tensors to slice. Each body op must be local under the cut or a sum over it, and nothing but the
body may look at what it computes in shards.
"""

from __future__ import annotations

import dataclasses
import math

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.placement import Sharded, Whole
from tf_wu_shard.program.compiled_calls import compiled_in
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ, Access
from tf_wu_shard.rules.writes import WRITES, WRITES_OF_PARTS, is_fused_update
from tf_wu_shard.step.replica_matching import ReplicaMatcher
from tf_wu_shard.step.variable_values import VariableValues, check_order, values_of
from tf_wu_shard.weight_update.analysis.adopted_slots import adopted_slots, written_beside
from tf_wu_shard.weight_update.analysis.external_reductions import sums_over_gradients
from tf_wu_shard.weight_update.analysis.part_wise_writes import part_wise_with_others
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.types import (
    BodyOp,
    Operand,
    OperandKind,
    UpdatedVariable,
    WeightUpdate,
)
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice
from tf_wu_shard.weight_update.analysis.updated_variables import (
    look_from_outside,
    updated_variables,
)


class BodyBuilder:
    """Builds bodies in one graph."""

    _slice_type: type[UpdateSlice] = UpdateSlice

    def __init__(self, graph: ReducedGraph, matcher: ReplicaMatcher, unclaimed: set[str]) -> None:
        """Prepares to build.

        Args:
            graph: The graph.
            matcher: Matches the copies of updates in it.
            unclaimed: Keys of the variables that no gradient was followed to. What an update has
                as a slot all the same is taken out.
        """
        self._graph = graph
        self._matcher = matcher
        self._view = graph.view
        self._names = graph.names
        self._handles = graph.handles
        self._unclaimed = unclaimed
        self._devices = graph.devices

    def build(self, keys: tuple[int, ...], variables: tuple[str, ...]) -> WeightUpdate | Refusal:
        """Builds the update that writes `variables` from the reductions `keys`.

        Slots that the update writes with sums of its gradient only (Adafactor's second moments), or
        with what it makes of its other slots (Apollo's), are found by going backward, and belong to
        it where nothing else touches them.

        Args:
            keys: The reductions that were followed to these variables.
            variables: Keys of all variables that they reach.

        Returns:
            The update, or the first reason against it.
        """
        found, more = self._build(keys, variables)
        adopted = set[str]()
        while not more <= adopted:
            adopted |= more
            larger, more = self._build(keys, (*variables, *sorted(adopted)))
            if not isinstance(larger, WeightUpdate):
                continue  # What was in its way may want to be adopted as well.
            if {v.key for v in larger.slots} >= adopted:
                self._unclaimed -= adopted
                return larger
            break
        return found

    def _build(
        self, keys: tuple[int, ...], variables: tuple[str, ...]
    ) -> tuple[WeightUpdate | Refusal, set[str]]:
        """The update or what is against it, and the slots that it may have besides."""
        touching: dict[str, list[VariableValues]] = {}
        for variable in variables:
            found = self._values(variable)
            if isinstance(found, Refusal):
                return found, set()
            touching[variable] = found
        refusal = self._check_part_wise(touching)
        if refusal is not None:
            return refusal, set()
        sums = self._external_reductions(keys)
        refusal = self._match_writes(touching) or self._match(variables[0], sums)
        if refusal is not None:
            return refusal, set()
        slice_ = self._placed(keys, touching, sums[0])
        if isinstance(slice_, Refusal):
            return slice_, set()
        body = self._of_all(slice_)
        refusal = self._only_body_looks(slice_, keys, body)
        if refusal is not None:
            return refusal, written_beside(self._view, slice_) & self._adoptable(slice_.size)
        updated = updated_variables(self._graph, touching, body)
        if isinstance(updated, Refusal):
            return updated, set()
        update = dataclasses.replace(
            self._update(slice_, updated, keys),
            compiled_in=frozenset(compiled_in(self._view.ops[name].node) for name in body) - {""},
        )
        adoptable = self._adoptable(slice_.size)
        beside = slice_.read_besides
        # There are mostly none, and looking for what is written takes long.
        if not adoptable <= beside:
            beside = beside | adopted_slots(self._view, slice_)
        return update, beside & adoptable

    def _external_reductions(self, keys: tuple[int, ...]) -> list[list[Op]]:
        """Per replica, the sums over the gradients that go into what is outside."""
        replicas = range(len(self._devices))
        return self._alike([sums_over_gradients(self._graph, keys, r) for r in replicas])

    def _alike(self, sums: list[list[Op]]) -> list[list[Op]]:
        """Per replica, its sums; replica 0's where it alone has some, and none if they differ."""
        if not any(sums[1:]):
            return [sums[0] for _ in sums]
        return sums if len({len(own) for own in sums}) == 1 else [[] for _ in sums]

    def _placed(
        self, keys: tuple[int, ...], touching: dict[str, list[VariableValues]], sums: list[Op]
    ) -> UpdateSlice | Refusal:
        """The slice from the writes, placed, or why it cannot be.

        What is in its way stays outside where it is computed of whole weights alone.
        """
        outside = frozenset[str]()
        while True:
            slice_ = self._slice(keys, touching, sums, outside)
            if isinstance(slice_, Refusal):
                return slice_
            refusal = slice_.place()
            if refusal is None:
                return slice_
            more = slice_.computed_of_weights(refusal.where)
            if more <= outside:
                return refusal
            outside |= more

    def _slice(
        self,
        keys: tuple[int, ...],
        touching: dict[str, list[VariableValues]],
        sums: list[Op],
        of_whole_weights: frozenset[str],
    ) -> UpdateSlice | Refusal:
        """The slice from the writes, not placed yet."""
        return self._slice_type(self._graph, keys, touching, sums, of_whole_weights)

    def _adoptable(self, size: int) -> set[str]:
        """Keys of the variables that nothing claimed and that may be slots of an update."""
        return {variable for variable in self._unclaimed if self._may_adopt(variable, size)}

    def _may_adopt(self, variable: str, size: int) -> bool:
        """Whether a variable that nothing claimed may be a slot of an update."""
        handle = self._handles[variable].get(0)
        if handle is None:
            return False
        ref = self._view.variables[handle]
        if ref.trainable or math.prod(ref.shape or ()) != size:
            return False
        return bool(values_of(self._view, handle).own_writes)

    def _values(self, variable: str) -> list[VariableValues] | Refusal:
        """Per replica, the values of the variable, if what touches it is known and ordered."""
        per_replica: list[VariableValues] = []
        for replica in range(len(self._devices)):
            handle = self._handles[variable].get(replica)
            if handle is None:
                return refusals.Replicas.NOT_TOUCHED.at(variable, replica=replica)
            found = values_of(self._view, handle)
            for write in found.writes:
                op = write.op
                if op.type in WRITES_OF_PARTS:
                    return refusals.Updates.PART_WRITTEN.at(op.name, op_type=op.type)
                if write.access is Access.UNKNOWN:
                    return _against_taker(op, variable)
            refusal = check_order(self._view, handle)
            if refusal is not None:
                return refusal
            per_replica.append(found)
        return per_replica

    def _check_part_wise(self, touching: dict[str, list[VariableValues]]) -> Refusal | None:
        """Why the branches that work on the variables part by part need others as well, or None."""
        return part_wise_with_others(self._view, touching)

    def _match_writes(self, touching: dict[str, list[VariableValues]]) -> Refusal | None:
        for variable, per_replica in touching.items():
            refusal = self._match(variable, [values.own_writes for values in per_replica])
            if refusal is not None:
                return refusal
        return None

    def _match(self, variable: str, per_replica: list[list[Op]]) -> Refusal | None:
        """Matches the replicas' ops, writes of the variable perhaps, one by one."""
        # The copies are matched with the first one; where there is but one, with themselves.
        first_matched = 1 if len(per_replica) > 1 else 0
        for replica, own in enumerate(per_replica[first_matched:], start=first_matched):
            if len(own) != len(per_replica[0]):
                return refusals.Replicas.WRITTEN_MORE_OFTEN.at(variable, replica=replica)
            for first, other in zip(per_replica[0], own, strict=True):
                refusal = self._matcher.match(replica, first.name, other.name)
                if refusal is not None:
                    return refusal
        return None

    def _only_body_looks(
        self, slice_: UpdateSlice, keys: tuple[int, ...], body: set[str]
    ) -> Refusal | None:
        """Why something outside would miss a value that the body computes, or None.

        Args:
            slice_: The slice, placed.
            keys: The reductions.
            body: The names of the body's ops on all replicas.
        """
        for replica in range(len(self._devices)):
            values = [
                value
                for op in slice_.body
                if op.type != READ and op.type not in WRITES and op.name not in slice_.sums
                for value in self._view.results(self._matcher.partner(replica, op.name))
            ]
            values += [v for key in keys for v in self._names.of(key, replica)]
            refusal = look_from_outside(self._view, values, body)
            if refusal is not None:
                return refusal
        return None

    def _of_all(self, slice_: UpdateSlice) -> set[str]:
        """The body's ops on all replicas: those of all look at what replica 0 computes for all."""
        replicas = range(len(self._devices))
        return {self._matcher.partner(r, op.name) for r in replicas for op in slice_.body}

    def _update(
        self, slice_: UpdateSlice, updated: tuple[UpdatedVariable, ...], keys: tuple[int, ...]
    ) -> WeightUpdate:
        return WeightUpdate(updated, keys, self._body(slice_), self._devices)

    def _body(self, slice_: UpdateSlice) -> tuple[BodyOp, ...]:
        numbers = {op.name: i for i, op in enumerate(slice_.body)}
        return tuple(self._body_op(slice_, op, numbers) for op in slice_.body)

    def _body_op(self, slice_: UpdateSlice, op: Op, numbers: dict[str, int]) -> BodyOp:
        num_replicas = len(self._devices)
        names = tuple(self._matcher.partner(r, op.name) for r in range(num_replicas))
        summed = slice_.sums.get(op.name)
        inputs = op.inputs if summed is None else op.inputs[:1]
        operands = tuple(self._operand(slice_, op, v, numbers) for v in inputs)
        variable = operands[0].variable if operands else ""
        local = slice_.locals.get(op.name)
        return BodyOp(op.type, names, operands, variable, summed, local=local)

    def _handle_or_gradient(self, slice_: UpdateSlice, value: Value) -> Operand | None:
        """The operand that a value is in whatever way its update is done, if it is one of these."""
        if value.op in self._view.variables:
            return Operand(OperandKind.HANDLE, variable=self._view.variables[value.op].key)
        if slice_.is_gradient(value):
            return Operand(OperandKind.GRADIENT, index=self._names[value][0])
        return None

    def _operand(
        self, slice_: UpdateSlice, op: Op, value: Value, numbers: dict[str, int]
    ) -> Operand:
        view, known = self._view, self._handle_or_gradient(slice_, value)
        if known is not None:
            return known
        placement = slice_.placements[value]
        if isinstance(placement, Sharded):
            source = slice_.source(value)
            return Operand(OperandKind.BODY, index=numbers[source.op], output=source.index)
        assert not isinstance(placement, Whole), "an op of whole tensors is none on shards"
        values = tuple(self._matcher.value_on(r, value) for r in range(len(self._devices)))
        size = slice_.size_at(op)
        scalar = math.prod(placement.shape) == 1 and size != 1
        if is_fused_update(op.type):
            scalar = value != op.inputs[WRITES[op.type].operand]
        if scalar:
            return Operand(OperandKind.SCALAR, values=values, shape=placement.shape)
        if math.prod(placement.shape) != size and not is_fused_update(op.type):
            result = view.shape(Value(op.name)) or ()
            return Operand(OperandKind.BROADCAST, values=values, shape=result)
        return Operand(OperandKind.SLICE, values=values, shape=placement.shape)


def _against_taker(op: Op, variable: str) -> Refusal:
    """What is against an op that may do anything to a variable whose handle it takes."""
    if is_call(op.type):
        return refusals.Updates.WRITTEN_IN_CALL.at(op.name, op_type=op.type, variable=variable)
    return refusals.Updates.HANDLE_TAKEN.at(op.name, op_type=op.type, variable=variable)
