"""Finds the updates that one replica can do alone, where shards of them cannot be computed.

A matrix function of the gradient (the Newton-Schulz iteration of Muon, the inverse roots of
Shampoo) needs all of it at once. The replicas compute the same from it, so one of them will do. It
is proved of the whole body as of any other update that the replicas' copies are one program and
that what enters it is the same on all of them; only what the ops compute does not matter.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.placement import Placement, Whole
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import num_written
from tf_wu_shard.step.accesses import writes_in_call
from tf_wu_shard.step.variable_values import VariableValues, values_of
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.fallback import fall_back, still_refused
from tf_wu_shard.weight_update.analysis.part_wise_writes import refuse_part_wise
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.types import (
    BodyOp,
    Operand,
    OperandKind,
    RefusedUpdate,
    WeightUpdate,
)
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice


def owned_updates(
    graph: ReducedGraph,
    sharded: Sequence[WeightUpdate],
    refused: Sequence[RefusedUpdate],
) -> tuple[tuple[WeightUpdate, ...], tuple[RefusedUpdate, ...]]:
    """Looks again at the updates that were refused for want of a rule.

    Args:
        graph: The graph, which holds a copy of every update for each replica.
        sharded: The updates that can be computed in shards.
        refused: The others.

    Returns:
        The updates among the refused ones that one replica can do, and the rest; where only the
        rules stood in the way, their reasons now also say why one replica cannot.
    """
    found, reasons = fall_back(
        graph, sharded, refused, lambda free: OwnedBodyBuilder(graph, graph.matcher(), free)
    )
    return _without_common_ops(found), still_refused(refused, reasons, _not_alone)


def _not_alone(why: Refusal) -> Refusal:
    return refusals.Matrices.NOR_ALONE.at(why.where, why=str(why))


def _without_common_ops(updates: Sequence[WeightUpdate]) -> tuple[WeightUpdate, ...]:
    """Leaves what several updates have in common (a norm of all weights) to every replica."""
    count = collections.Counter(op.ops[0] for update in updates for op in update.body)
    return tuple(
        dataclasses.replace(u, body=tuple(op for op in u.body if count[op.ops[0]] == 1))
        for u in updates
    )


def written(op: BodyOp) -> set[str]:
    """Keys of the variables that an op of a body writes."""
    return {operand.variable for operand in op.operands[: num_written(op.type)]}


class OwnedSlice(UpdateSlice):
    """The backward slice from the writes on replica 0; all of `body` is to run on one replica.

    Nothing is cut, so an op needs no rule: whatever yields the same on every replica may be left
    to one of them. What depends on this update's gradients and variables is its body.
    What depends on gradients of other updates besides, through single numbers only (the norm of
    all gradients), stays where it is: on every replica.
    """

    def _against_sizes(self) -> Refusal | None:
        """See `UpdateSlice`: an owner has variables of any sizes."""
        return None

    def _place_read(self, op: Op) -> None:
        if op.inputs[0].op in self._own_handles:
            self._take(op)

    def _place_computed(self, op: Op) -> Refusal | None:
        own = [value for value in op.inputs if isinstance(self._placement(value), Whole)]
        if own and writes_in_call(self._view, op):
            # The other replicas' components would miss it.
            return refusals.Matrices.CALL_WRITES.at(op.name, op_type=op.type)
        others = [
            v.op for v in op.inputs if v.op in self._view.variables.keys() - self._own_handles
        ]
        if own and others:
            key = self._view.variables[others[0]].key
            return refusals.Matrices.READS_BY_HANDLE.at(op.name, op_type=op.type, variable=key)
        if any(self._view.may_have_several(value) for value in own):
            self._take(op)
            return self._check_write(op)
        if any(self._is_of_others(value) for value in op.inputs):
            self._of_others.update(self._view.results(op.name))
        elif own:
            self._take(op)
        return None

    def _take(self, op: Op) -> None:
        """Leaves an op to the owner."""
        self.placements |= dict.fromkeys(self._view.results(op.name), Whole())
        self.body.append(op)

    def _placement(self, value: Value) -> Placement | Whole | None:
        return Whole() if self.is_gradient(value) else self.placements.get(value)

    def _is_of_others(self, value: Value) -> bool:
        return value in self._of_others or (value in self._names and not self.is_gradient(value))

    def _check_write(self, op: Op) -> Refusal | None:
        """Whether the owner has what it needs for an op."""
        if any(self._names.is_apart(value, self._keys) for value in op.inputs):
            return refusals.Updates.KEPT_APART.at(op.name)
        return None


class OwnedBodyBuilder(BodyBuilder):
    """Builds bodies of updates that one replica does."""

    _slice_type = OwnedSlice

    def build(self, keys: tuple[int, ...], variables: tuple[str, ...]) -> WeightUpdate | Refusal:
        """See `BodyBuilder.build`."""
        found = super().build(keys, variables)
        if isinstance(found, Refusal):
            return found
        return self._check_versions(found) or dataclasses.replace(found, whole=True)

    def _check_versions(self, update: WeightUpdate) -> Refusal | None:
        """Why others could not be handed a weight before its next write, or None.

        What hands it out stands for a read of the owner's, for which that write waits.
        """
        for weight in update.weights:
            writes = [op for op in update.body if weight.key in written(op)]
            for write in (writes[after - 1] for after in weight.versions[:-1]):
                for name, handle in zip(write.ops, weight.handles, strict=True):
                    if not values_of(self._view, handle).made_by(name).whole_reads:
                        return refusals.Matrices.NOT_READ_BY_ALL.at(name, variable=weight.key)
        return None

    def _check_part_wise(self, touching: dict[str, list[VariableValues]]) -> Refusal | None:
        return refuse_part_wise(touching)

    def _external_reductions(self, keys: tuple[int, ...]) -> list[list[Op]]:
        # They need no care: who looks at one is handed it by the replica that computes it.
        return [[] for _ in self._devices]

    def _only_body_looks(
        self, slice_: UpdateSlice, keys: tuple[int, ...], body: set[str]
    ) -> Refusal | None:
        # What else looks at a value is handed the whole of it; but only the owner's components
        # hold what they did, so nobody else may read his own for all.
        for op in slice_.body:
            partners = {self._matcher.partner(r, op.name) for r in range(1, len(self._devices))}
            if op.type == READ and op.name in partners:
                return refusals.Matrices.READ_FOR_ALL.at(op.name)
        return None

    def _operand(
        self, slice_: UpdateSlice, op: Op, value: Value, numbers: dict[str, int]
    ) -> Operand:
        view, known = self._view, self._handle_or_gradient(slice_, value)
        if known is not None:
            return known
        values = tuple(self._matcher.value_on(r, value) for r in range(len(self._devices)))
        return Operand(OperandKind.WHOLE, values=values, shape=view.shape(value) or ())
