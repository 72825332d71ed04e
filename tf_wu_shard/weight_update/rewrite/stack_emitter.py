"""Computes the matrix functions of a stack on whole tensors, between the shards of both sides.

The old functions go. Each replica computes as many copies of the one program that all of them are,
each on tensors of its own; what the bodies read under the old names of what they yield is
redirected to the shards.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.weight_update.analysis.types import (
    BodyOp,
    FunctionValue,
    MatrixFunction,
    Operand,
    OperandKind,
)
from tf_wu_shard.weight_update.plan.stacks import StackPlan
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter
from tf_wu_shard.weight_update.rewrite.emission import Emission

# What was put together, by the shards it was made of and whether by turns: functions that the same
# tensors enter (the gradient, those of both statistics of Shampoo and the step) share them.
Wholes: TypeAlias = dict[tuple[bool, tuple[Value, ...]], list[Value]]


@dataclasses.dataclass(frozen=True)
class _Member:
    """One matrix function, and the emitter of the body that it belongs to."""

    emitter: BodyEmitter
    number: int

    @property
    def function(self) -> MatrixFunction:
        return self.emitter.update.functions[self.number]

    @property
    def ops(self) -> tuple[BodyOp, ...]:
        first = self.function.first
        return self.emitter.update.body[first : first + self.function.count]

    def yielded(self, operand: Operand) -> Value:
        """What the body reads, under its old name."""
        return Value(self.emitter.update.body[operand.index].ops[0], operand.output)


class StackEmitter:
    """Emits one stack, in a program that all replicas run."""

    def __init__(
        self,
        emission: Emission,
        stack: StackPlan,
        emitters: Mapping[str, BodyEmitter],
        known: Wholes,
    ) -> None:
        """Prepares to emit.

        Args:
            emission: Where to emit.
            stack: Who computes what.
            emitters: For each update, by its name, what emitted its body.
            known: What other stacks have put together; this one adds its own.
        """
        dialect, view = emission.dialect, emission.view
        assert dialect.stacks is not None, "the analysis finds matrix functions for stacks only"
        self._view = view
        self._dialect = dialect
        self._exchange = dialect.stacks
        self._edit = emission.edit
        self._by_turns = stack.by_turns
        self._known = known
        self._members = [_Member(emitters[m.update.name], m.number) for m in stack.members]
        turns = stack.turns(dialect.replicas.total) if stack.by_turns else stack.members
        # Whose tensors are put together: by turns, filled up to as many for each replica.
        self._computed = [_Member(emitters[m.update.name], m.number) for m in turns]
        self._copies = stack.each
        # All members are one program, so that any of them shows what it is.
        self._model = self._members[0]
        update = self._model.emitter.update
        self._at = emission.at(update.devices[0], update.name, "matrix_function")
        self._emitted: collections.Counter[str] = collections.Counter()

    def emit(self) -> Mapping[str, int]:
        """Emits it.

        Returns:
            How many collectives of each kind that took.
        """
        function = self._model.function
        entering = {
            value.operand: self._whole(place, value) for place, value in enumerate(function.inputs)
        }
        outside = {operand: self._outside(n) for n, operand in enumerate(function.outside)}
        copies = [
            self._copy(
                {operand: own[number] for operand, own in entering.items()},
                {operand: own[number] for operand, own in outside.items()},
            )
            for number in range(self._copies)
        ]
        for place, value in enumerate(function.results):
            op = value.operand.index - function.first
            own = [Value(copy[op], value.operand.output) for copy in copies]
            self._cut(place, own, value)
        for member in self._members:
            for number, old in enumerate(member.ops):
                self._edit.replace_ops({old.ops[0]: [copy[number] for copy in copies]})
        return self._emitted

    def _layout(self, size: int) -> AnyLayout:
        """How tensors of a size are cut, of all members."""
        return self._model.emitter.layout_of(size)

    def _whole(self, place: int, value: FunctionValue) -> list[Value]:
        """For each copy, the whole of the input number `place`."""
        shards = tuple(one.emitter.entering[one.number][place] for one in self._computed)
        found = self._known.get((self._by_turns, shards))
        if found is None:
            found = self._put_together(place, value, shards)
            self._known[self._by_turns, shards] = found
        return found

    def _put_together(
        self, place: int, value: FunctionValue, shards: Sequence[Value]
    ) -> list[Value]:
        """The whole of the input number `place` out of the shards of each copy's."""
        at, layout = self._at.within(f"input_{place}"), self._layout(value.size)
        if self._by_turns:
            self._emitted["all_to_all"] += 1
            return self._exchange.own_whole(at, shards, layout)
        self._emitted["all_gather"] += 1
        own, layouts = [[shard] for shard in shards], [layout] * len(shards)
        whole = self._dialect.all_gather(at, own, layouts)
        return [values[0] for values in whole]

    def _outside(self, place: int) -> list[Value]:
        """For each copy, the value number `place` that enters it from outside of the update."""
        operands = [member.function.outside[place] for member in self._computed]
        values = [operand.values[0] for operand in operands]
        if not self._by_turns:
            return values
        if len(set(values)) == 1:
            return values[: self._copies]
        at = self._at.within(f"outside_{place}")
        return self._exchange.select_own(at, values, operands[0].shape)

    def _copy(
        self, entering: Mapping[Operand, Value], outside: Mapping[Operand, Value]
    ) -> list[str]:
        """One copy of the program: for each of its ops the name of the new one."""
        function, names = self._model.function, list[str]()
        for number, op in enumerate(self._model.ops):
            inputs = []
            for operand in op.operands:
                own = dataclasses.replace(operand, shape=())
                if own in entering:
                    inputs.append(self._in_shape(entering[own], operand))
                elif operand.kind is OperandKind.BODY:
                    inputs.append(Value(names[operand.index - function.first], operand.output))
                else:
                    inputs.append(outside.get(operand, operand.values[0]))
            waits = {
                c for m in self._members for c in self._view.ops[m.ops[number].ops[0]].controls
            }
            node = self._view.ops[op.ops[0]].node
            names.append(self._at.like(node, inputs, op.type, controls=waits).op)
        return names

    def _in_shape(self, value: Value, operand: Operand) -> Value:
        """A tensor of its layout's shape in the one that an op has it in."""
        if operand.shape == self._layout(math.prod(operand.shape)).shape:
            return value
        return self._at.reshape(value, operand.shape, "shape")

    def _cut(self, place: int, own: Sequence[Value], value: FunctionValue) -> None:
        """Redirects what reads result `place` of each member to the replica's shard of it."""
        at, layout = self._at.within(f"result_{place}"), self._layout(value.size)
        if self._by_turns:
            self._emitted["all_to_all"] += 1
            shards = self._exchange.shards_of_all(at, own, layout)
        else:
            held = self._dialect.shard_of(0)
            shards = [self._dialect.slice_own(at, whole, layout, held) for whole in own]
        # By turns there are shards of what fills up, too.
        for member, shard in zip(self._members, shards, strict=False):
            old = member.yielded(member.function.results[place].operand)
            self._edit.replace_value(old, shard)
