"""The shapes of gradients that no op of the graph proves: those of the variables that they update.

What a gradient is computed from may leave its shape open, and TensorFlow then cuts a pack of
gradients at places that are known when the step runs. But the sum goes to a variable, whose shape
is known, through ops that keep shapes. So the gradient has the variable's shape, or the step means
something else than it says; which of the two is checked when the step runs, before anything
travels.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.step.packs import parts, unflattened
from tf_wu_shard.step.reductions import EnsuredShape

# Ops that pass their first operand on as it is.
_PASSING = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot", "EnsureShape"})


def ensured_shapes(view: GraphView, carried: Iterable[CarriedReduction]) -> list[EnsuredShape]:
    """Finds shapes for gradients whose shape is open.

    Args:
        view: The graph.
        carried: The sums over replicas in it.

    Returns:
        For each of these gradients the values on all replicas that are to have a shape, and the
        shape. A gradient that reaches no variable, or variables of different shapes, has none.
    """
    found = []
    for reduction in carried:
        if isinstance(reduction, CarriedSlices):
            continue
        for operands, results in parts(view, reduction):
            if any(view.shape(operand) is None for operand in operands):
                ensured = _ensured(view, operands, results[0])
                found += [] if ensured is None else [ensured]
    return found


def with_ensured(view: GraphView, ensured: Iterable[EnsuredShape]) -> GraphView:
    """The same view, in which the shapes that are made sure of are known."""
    return view.with_shapes({value: one.shape for one in ensured for value in one.values})


def weight_of(view: GraphView, operand: Value, result: Value) -> str:
    """The trainable variable of a sum's size that the sum reaches, by its key; "" where none is.

    Args:
        view: The graph.
        operand: What a replica contributes to the sum.
        result: The sum, on the same replica.
    """
    wanted = _Wanted(view, operand)
    wanted.follow(result)
    shape = view.shape(operand)
    size = None if shape is None else math.prod(shape)
    for ref in wanted.reached:
        if ref.trainable and ref.shape is not None and size in (None, math.prod(ref.shape)):
            return ref.key
    return ""


def _ensured(view: GraphView, operands: tuple[Value, ...], result: Value) -> EnsuredShape | None:
    """What is to be ensured of one gradient, by what its sum on replica 0 goes into."""
    wanted = _Wanted(view, operands[0])
    wanted.follow(result)
    tensors = tuple(unflattened(view, operand) for operand in operands)
    for values, shapes in (
        (tensors, wanted.shapes[_Form.TENSOR]),
        (operands, wanted.shapes[_Form.TRAVELLING]),
    ):
        if len(shapes) == 1:
            (shape,) = shapes
            if all(view.shape(value) in (None, shape) for value in values):
                return EnsuredShape(values, shape, wanted.variable)
    return None


class _Form(enum.Enum):
    """What shape a sum has on its way to a variable."""

    TRAVELLING = "that in which the gradient is summed"
    TENSOR = "that of the tensor which the gradient was flattened from"
    OTHER = "another one"


class _Wanted:
    """Which shapes a sum is to have for what it goes into.

    Attributes:
        shapes: The shapes, by the form of the sum that is to have them.
        reached: The variables that the sum reaches, in the order in which it was followed.
    """

    def __init__(self, view: GraphView, operand: Value) -> None:
        self.shapes: dict[_Form, set[tuple[int, ...]]] = {form: set() for form in _Form}
        self._view = view
        self._tensor = unflattened(view, operand)
        stated = view.stated(operand)
        self._is_vector = stated is not None and len(stated) == 1
        self.reached: list[VariableRef] = []

    @property
    def variable(self) -> str:
        """The first variable that the sum reaches, a trainable one where there is one."""
        trained = [ref for ref in self.reached if ref.trainable]
        return (trained or self.reached)[0].key if self.reached else ""

    def follow(self, result: Value) -> None:
        """Follows a sum through ops that keep its shape to the variables that it updates."""
        stack = [(result, _Form.TRAVELLING)]
        seen = set(stack)
        while stack:
            value, form = stack.pop()
            for op, slot in self._view.consumers(value):
                ref = self._written(op, slot)
                if ref is not None and ref.shape is not None:
                    self.reached.append(ref)
                    self.shapes[form].add(ref.shape)
                    # What is made of a slot says whose slot it is.
                    reads = self._view.consumers(op.inputs[0])
                    more = [(Value(r.name), _Form.OTHER) for r, _ in reads if r.type == READ]
                else:
                    more = self._behind(op, slot, form)
                stack += [one for one in more if one not in seen]
                seen.update(more)

    def _written(self, op: Op, slot: int) -> VariableRef | None:
        """The variable that an op writes, in its own shape, with what enters it by an operand."""
        write = WRITES.get(op.type)
        if write is None or write.rows is not None or slot != write.operand:
            return None
        return self._view.variables.get(op.inputs[0].op)

    def _behind(self, op: Op, slot: int, form: _Form) -> list[tuple[Value, _Form]]:
        """The result of an op through which the sum can be followed, and its form there."""
        if op.type == "Reshape" and slot == 0:
            return [(Value(op.name), self._reshaped(op, form))]
        passed = op.passes_each_on or (op.type in _PASSING and slot == 0)
        if passed or family_of(op.type) is Family.ELEMENTWISE:
            return [(op.result_of(slot), form)]
        return []

    def _reshaped(self, op: Op, form: _Form) -> _Form:
        """The form that a Reshape gives a sum; one to a known size shows the size of a vector."""
        if form is not _Form.TRAVELLING:
            return _Form.OTHER
        shape = self._view.producer(op.inputs[1])
        if shape.type == "Shape" and shape.inputs[0] == self._tensor:
            return _Form.TENSOR
        known = self._view.shape(Value(op.name))
        if known is not None and self._is_vector:
            self.shapes[form].add((math.prod(known),))
        return _Form.OTHER
