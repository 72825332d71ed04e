"""What an update writes to its variables, as sums of products of what it reads.

The ops are followed in the graph itself, on the first replica: those of the body in their order, so
that a variable that was written is distinguished from what it was before, and what enters the body
from outside as far back as norms and other sums go. Ops that no rule here names make a thing of
which nothing more is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.dtypes import INT32, INTEGERS
from tf_wu_shard.graph.constants import floating_scalar, integers
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.recognition import newton_schulz, value_rules
from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum
from tf_wu_shard.inspection.recognition.row_values import (
    COMBINED,
    ENTRY_BY_ENTRY,
    branch_values,
    row_ops,
)
from tf_wu_shard.inspection.recognition.value_rules import RULES
from tf_wu_shard.inspection.recognition.written_out import is_constant, unless_skipped
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import ASSIGN, WRITES, is_plain_write
from tf_wu_shard.weight_update.analysis.types import OperandKind, WeightUpdate

# Longer than the way of any learning rate or norm into an update.
_MOST_OUTSIDE = 400

# A sum of more is none that an update is made of: such as a norm over all gradients.
_MOST_OPERANDS = 32

_OF_ARRAYS = (value_rules.PRODUCTS, value_rules.SUMS, value_rules.EXTREMES)
_ADDS = frozenset({"Add", "AddV2", "AddN"})
_SAME = frozenset({"Identity", "IdentityN", "Cast", "StopGradient", "PreventGradient"})


class UpdateValues:
    """The values of one update.

    Attributes:
        algebra: What they are sums in.
        written: For each variable, by key, what is written to it, one after the other.
        new: For each variable, by key, the thing that it is once it was written for the last time;
            none for the weight, whose new value is what is written.
        old: For each variable, by key, the thing that it is before.
        beside: What is written, the same way, to other variables that the update reads.
        weight: The weight's key.
        stepped: What the weight is behind the writes that are the optimizer's, if it was said how
            many those are.
        gradient: The number of the thing that the gradient is.
    """

    def __init__(self, update: WeightUpdate, view: GraphView, steps: int | None = None) -> None:
        """Follows the update.

        Args:
            update: The update; it has one gradient, which may be sparse.
            view: The graph that it was found in.
            steps: How many writes of the weight are the optimizer's: what they make of it is one
                thing to those that follow. None: all are.
        """
        self.algebra = Algebra()
        self._view = view
        self.stepped = self.algebra.thing("stepped")
        self._steps = steps
        self._values: dict[Value, Sum] = {}
        self._left = _MOST_OUTSIDE
        # Before the gradient, only what scales it is followed.
        self._looks_back = False
        self.gradient = self._thing("gradient")
        self.weight = update.variables[0].key
        self.old = {v.key: self.algebra.thing(f"old {v.key}") for v in update.variables}
        self._held = dict(self.old)
        self.new: dict[str, Sum] = {}
        self._beside: dict[str, str] = {}
        self.written: dict[str, list[Sum]] = {v.key: [] for v in update.variables}
        self._sizes = {math.prod(v.shape) for v in update.variables}
        self._assigned = self._assigned_by(update)
        self._row_ops = row_ops(update)
        for op in update.body:
            node = view.ops[op.ops[0]]
            for operand, value in zip(op.operands, node.inputs, strict=False):
                # Of a sparse one, the values; its other parts are integers.
                if operand.kind is OperandKind.GRADIENT and view.dtype(value) not in INTEGERS:
                    self._enter_gradient(value)
        for part in update.body:
            self._enter(view.ops[part.ops[0]])
        self.beside: dict[str, list[Sum]] = {}
        followed = 0
        while followed < len(self._beside):  # Following one may find others.
            key, handle = list(self._beside.items())[followed]
            followed += 1
            self._follow_beside(key, handle)

    def of(self, value: Value) -> Sum:
        """A value of the graph."""
        stack = [value]
        while stack:
            last = stack[-1]
            op = self._view.ops[last.op]
            if last in self._values:
                stack.pop()
                continue
            missing = [v for v in self._needed(op, last) if v not in self._values]
            if missing and len(missing) <= self._left:
                self._left -= len(missing)
                stack += missing
                continue
            self._set(op, last)
            stack.pop()
        return self._values[value]

    def _thing(self, name: str) -> int:
        (((number, _),),) = self.algebra.thing(name)
        return number

    def _enter_gradient(self, value: Value) -> None:
        """Takes a value for the gradient, or what it is a sign of, or scaled by the weight's norm.

        A step on one device has no sum that says where the gradient is: what a layer's norm scales
        is found there already scaled, and of what only the sign matters, the sign is found.
        """
        gradient = self.algebra.once(self.gradient)
        if value in self._values:
            return
        self._looks_back = True
        operand = self.of(value)
        self._looks_back = False
        weight = self.algebra.only(self.old[self.weight])
        others = self.algebra.leaves(operand) - {weight}
        scaled = weight in self.algebra.leaves(operand, within="sum of")
        if len(others) == 1 and (scaled or others <= self.algebra.leaves(operand, within="sign")):
            (self.gradient,) = others
        else:
            self._values = {value: gradient}

    def _follow_beside(self, key: str, handle: str) -> None:
        """Notes what is written to a variable beside the update, if that is known.

        What only begins anew, such as gradients that were added up, says nothing of the update.
        """
        writes = self._writes_of(handle)
        if len(writes) == 1 and not is_constant(self._view, writes[0].inputs[1]):
            operand, combined = self.of(writes[0].inputs[1]), WRITES[writes[0].type].on_values
            if combined is not None:
                by = self.algebra.scaled(operand, -1.0 if combined == "Sub" else 1.0)
                operand = self.algebra.added([self.old[key], by])
            self.beside[key] = [operand]

    def _writes_of(self, handle: str) -> list[Op]:
        return [op for op, _ in self._view.consumers(Value(handle)) if is_plain_write(op.type)]

    def _assigned_by(self, update: WeightUpdate) -> dict[Value, str]:
        """The values that become slots, each with the slot's key."""
        found: dict[Value, str] = {}
        slots = {v.key for v in update.variables[1:]}
        for part in update.body:
            node = self._view.ops[part.ops[0]]
            if part.type == ASSIGN and part.variable in slots:
                value = unless_skipped(self._view, node.inputs[1], part.variable)
                if self._view.ops[value.op].type != READ:
                    found[value] = part.variable
        return found

    def _enter(self, op: Op) -> None:
        if not is_plain_write(op.type) and op.type not in COMBINED:
            self.of(Value(op.name))
            return
        ref = self._view.variables.get(op.inputs[0].op)
        if ref is None or ref.key not in self.written:
            return
        key, scattered = ref.key, op.type in COMBINED
        combined = COMBINED[op.type] if scattered else WRITES[op.type].on_values
        value = op.inputs[2 if scattered else 1]
        if combined is None:
            value = unless_skipped(self._view, value, key)
        operand = self.of(value)
        if self._assigned.get(value) == key and key in self.new:
            self._held[key] = self.new[key]
            return
        if combined is not None:
            by = self.algebra.scaled(operand, -1.0 if combined == "Sub" else 1.0)
            operand = self.algebra.added([self._held[key], by])
        self._held[key] = self._becomes(key, operand)

    def _becomes(self, key: str, value: Sum) -> Sum:
        """Notes what a variable becomes; returns what it is called from then on."""
        self.written[key].append(value)
        if key == self.weight:
            return self.stepped if len(self.written[key]) == self._steps else value
        self.new[key] = self.algebra.thing(f"new {len(self.written[key])} {key}")
        return self.new[key]

    def _set(self, op: Op, value: Value) -> None:
        if value in self._values:
            return
        found = self._computed(op, value)
        key = self._assigned.get(value)
        if key is not None and self.algebra.only(found) is None and not self.written[key]:
            found = self._becomes(key, found)
        self._values[value] = found

    def _needed(self, op: Op, value: Value) -> Sequence[Value]:
        if op.passes_each_on:
            return op.operands_of(value.index)
        if self._looks_back and not self._scales(op):
            return ()
        if op.type == value_rules.TRANSPOSE or self._is_entry_by_entry(op):
            return op.inputs[:1]
        if op.name in self._row_ops:
            return [v for v in op.inputs[1:] if self._view.dtype(v) not in INTEGERS]
        known = any(op.type in rules for rules in (RULES, *_OF_ARRAYS))
        relabels = family_of(op.type) is Family.RELABEL
        if (
            is_plain_write(op.type)
            or op.type == READ
            or not (known or relabels or op.type in _SAME)
        ):
            return ()
        needed = op.inputs[:1] if relabels else op.inputs
        return needed if len(needed) <= _MOST_OPERANDS else ()

    def _is_entry_by_entry(self, op: Op) -> bool:
        return op.type in ENTRY_BY_ENTRY and op.name in self._row_ops

    def _scales(self, op: Op) -> bool:
        if op.type in value_rules.PRODUCTS or op.type == value_rules.TRANSPOSE:
            return False
        result = self._view.shape(Value(op.name))
        if result is not None and math.prod(result) == 1:
            return True
        if family_of(op.type) is Family.RELABEL and op.type not in _SAME:
            return result is not None and result == self._view.shape(op.inputs[0])
        return op.type not in value_rules.SUMS

    def _computed(self, op: Op, value: Value) -> Sum:
        constant = self._view.constant(Value(op.name)) if not op.inputs else None
        if constant is not None:
            return self._constant(constant, value)
        if op.type == READ:
            return self._read(op)
        operands = [self._values.get(v) for v in self._needed(op, value)]
        if not operands or any(o is None for o in operands):
            return self._unknown(value)
        found = self._by_rule(op, value, [o for o in operands if o is not None])
        return self._unknown(value) if found is None else found

    def _by_rule(self, op: Op, value: Value, operands: Sequence[Sum]) -> Sum | None:
        view, algebra = self._view, self.algebra
        if op.name in self._row_ops:
            return self._on_rows(op, value, operands)
        if op.type in value_rules.PRODUCTS:
            return value_rules.product(algebra, op, operands)
        if op.type == value_rules.TRANSPOSE:
            return value_rules.transposed(algebra, view, op, operands[0])
        if op.type in value_rules.SUMS or op.type in value_rules.EXTREMES:
            return value_rules.reduced(algebra, view, op, operands[0])
        if op.type in _SAME or (op.type not in RULES and family_of(op.type) is Family.RELABEL):
            before, after = view.shape(self._needed(op, value)[0]), view.shape(value)
            return value_rules.relabelled(algebra, before, after, operands[0], self._sizes)
        found = RULES[op.type](algebra, operands)
        return newton_schulz.folded(algebra, found) if op.type in _ADDS else found

    def _on_rows(self, op: Op, value: Value, operands: Sequence[Sum]) -> Sum | None:
        if self._is_entry_by_entry(op):
            return operands[0]
        branch = self._row_ops[op.name].branch
        assert branch is not None, "row_ops has no others"
        needed = dict(zip(self._needed(op, value), operands, strict=True))
        given = [needed.get(v) for v in op.inputs[1:]]
        return branch_values(self._view, op, branch.local, given, self.algebra)[value.index]

    def _constant(self, tensor: Any, value: Value) -> Sum:
        number = floating_scalar(tensor)
        if number is not None:
            return self.algebra.number(number)
        whole = (integers(tensor) or ()) if tensor.dtype == INT32 else ()
        return self.algebra.number(float(whole[0])) if len(whole) == 1 else self._unknown(value)

    def _read(self, op: Op) -> Sum:
        ref = self._view.variables.get(op.inputs[0].op)
        if ref is not None and ref.key in self._held:
            return self._held[ref.key]
        if ref is None:
            return self.algebra.thing(f"read {op.name}")
        if ref.shape is not None and math.prod(ref.shape) == 1:
            return self.algebra.thing(f"variable {ref.key}", plain=True)
        self._beside[ref.key] = op.inputs[0].op
        self.old[ref.key] = self.algebra.thing(f"old {ref.key}")
        self.new[ref.key] = self.algebra.thing(f"new {ref.key}")
        writes = self._writes_of(op.inputs[0].op)
        after = any(write.position < op.position for write in writes)
        return (self.new if after else self.old)[ref.key]

    def _unknown(self, value: Value) -> Sum:
        shape = self._view.shape(value)
        plain = shape is not None and math.prod(shape) == 1
        return self.algebra.thing(f"value {value}", plain=plain)
