"""Puts weights together from their shards, for whatever looks at them beside their updates.

A weight that stays whole between steps is gathered and assigned after its last write, and before
whenever something reads it between two writes. One that lives in shards is gathered where it is
read. What is there at the same time travels together.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.variable_values import VariableValue
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable
from tf_wu_shard.weight_update.plan.types import SlotPlan, VariablePlan, bucket_name
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.schedule import CollectiveSchedule
from tf_wu_shard.weight_update.rewrite.weight_versions import WeightVersion, looked_at

# A weight with the emitters of all copies of its update.
_Member = tuple[VariablePlan, Sequence[BodyEmitter], UpdatedVariable]


class WeightGathers:
    """Emits the all-gathers of one step.

    Attributes:
        count: How many were emitted.
        assigns: For each weight that was assigned, by replica, the ops that write it, in order.
    """

    def __init__(self, emission: Emission, schedule: CollectiveSchedule) -> None:
        """Prepares to emit.

        Args:
            emission: Where to emit.
            schedule: When exchanges come.
        """
        self._emission = emission
        self._schedule = schedule
        self.count = 0
        self.assigns: dict[str, tuple[tuple[str, ...], ...]] = {}

    def put_together(self, members: Sequence[_Member]) -> None:
        """All-gathers the versions of weights, those of one type and turn together, and assigns.

        Args:
            members: The weights of a bucket that stay whole, in shards as yet.
        """
        together: dict[tuple[int, int], list[tuple[_Member, int]]] = collections.defaultdict(list)
        for member in members:
            _, emitters, weight = member
            for number in range(len(weight.versions)):
                copies = _copies(emitters, weight, number)
                turn = self._schedule.after(version.writes[-1] for version in copies)
                together[weight.dtype, turn].append((member, number))
        written: dict[str, list[Sequence[str]]] = {}
        # An earlier version of a weight has an earlier turn, and is to be assigned first.
        for _, versions in sorted(together.items(), key=lambda own: own[0][1]):
            at = self._at([v for (v, _, _), _ in versions])
            shards = [[_shard(v) for v in _copies(e, w, number)] for (_, e, w), number in versions]
            layouts = [v.layout_of(math.prod(w.shape)) for (v, _, w), _ in versions]
            whole = self._emission.dialect.all_gather(at, shards, layouts)
            self.count += 1
            for (member, number), values in zip(versions, whole, strict=True):
                before = written.setdefault(member[2].key, [])
                before.append(self._assign(member, number, values, before))
        self.assigns |= {key: tuple(zip(*ops, strict=True)) for key, ops in written.items()}

    def _assign(
        self, member: _Member, number: int, values: Sequence[Value], before: list[Sequence[str]]
    ) -> Sequence[str]:
        """Assigns a version to every component, after those before it; by replica, the ops."""
        variable, emitters, weight = member
        assigns = []
        copies = _copies(emitters, weight, number)
        for replica, (version, value) in enumerate(zip(copies, values, strict=True)):
            device = variable.update.devices[replica]
            shaped = self._in_shape(value, variable, weight, device)
            assign = self._emission.at(device, weight.key, "assign").op(
                "AssignVariableOp",
                [Value(weight.handles[replica]), shaped],
                "",
                controls=[*version.controls, *(names[replica] for names in before[-1:])],
            )
            assigns.append(assign.op)
            emitters[replica].replace_writes(version, assign.op)
        return assigns

    def _in_shape(
        self, value: Value, variable: VariablePlan, weight: UpdatedVariable, device: str
    ) -> Value:
        """`value` in the weight's own shape, where the first one of its size has another."""
        if weight.shape == variable.layout_of(math.prod(weight.shape)).shape:
            return value
        at = self._emission.at(device, variable.variable, "all_gather/reshape")
        return at.reshape(value, weight.shape, "")

    def _at(self, bucket: Sequence[VariablePlan]) -> Emitter:
        """Where weights that travel together are put together."""
        return self._emission.at("", bucket_name(bucket), "all_gather")

    def serve_reads(self, bucket: Sequence[VariablePlan]) -> None:
        """Gathers the weights in shards whenever something beside the update reads them.

        Args:
            bucket: The variables of a bucket.
        """
        by_time: dict[tuple[Any, ...], list[tuple[VariablePlan, SlotPlan, VariableValue]]] = {}
        for variable in bucket:
            for weight in variable.sharded_weights:
                for held in self._schedule.read(weight.variable):
                    wire = _wire_dtype(variable, weight)
                    when = (weight.dtype, wire, held.number, self._schedule.after(held.after))
                    by_time.setdefault(when, []).append((variable, weight, held))
        for (dtype, wire, *_), members in by_time.items():
            at = self._at([v for v, _, _ in members])
            own, wanted = [], []
            for member in members:
                _, weight, held = member
                there = self._emission.at("", weight.variable, "shard")
                handle = self._emission.handles[weight.variable][0]
                shard = there.op(READ, [handle], "", controls=held.after, dtype=dtype)
                self._emission.edit.replace_ops({read.name: [shard.op] for read in held.reads})
                if looked_at(self._emission.view, held.reads):
                    wanted.append(member)
                    own.append([at.cast(shard, wire, "cast")])
            if not wanted:
                continue
            layouts = [weight.layout for _, weight, _ in wanted]
            whole = self._emission.dialect.all_gather(at, own, layouts)
            self.count += 1
            for (_, _, held), values in zip(wanted, whole, strict=True):
                value = at.cast(values[0], dtype, "cast")
                for read in held.reads:
                    self._emission.edit.replace_value(Value(read.name), value)


def _copies(
    emitters: Sequence[BodyEmitter], weight: UpdatedVariable, number: int
) -> list[WeightVersion]:
    """By replica, version number `number` of a weight."""
    return [emitter.versions[weight.key][number] for emitter in emitters]


def _wire_dtype(variable: VariablePlan, weight: SlotPlan) -> int:
    """What a weight travels in; others than the update's first one in their own type."""
    return variable.gather_dtype if weight.variable == variable.variable else weight.dtype


def _shard(version: WeightVersion) -> Value:
    assert version.shard is not None, "a version was not written"
    return version.shard
