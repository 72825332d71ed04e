"""The shapes of values in a graph that a rewrite made: what it emits says none.

They are shown, and nothing is decided by them; where one does not follow from constants it is not
known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.inspection.reading.shapes import Shape, Shapes
from tf_wu_shard.model_files.shapes import shape_of

# Which operand of an op is the shape of its result.
_SHAPE_OPERAND = {"Reshape": 1, "Slice": 2, "Fill": 0}

# Whose result has the shape of the first operand.
_KEPT = frozenset({"XlaOptimizationBarrier", "XlaDynamicUpdateSlice", "CrossReplicaSum", "Cast"})


class EmittedShapes(Shapes):
    """As `Shapes`, and through the ops that a rewrite emits."""

    def __init__(self) -> None:
        super().__init__()
        self._view: GraphView | None = None

    def read(self, view: GraphView, variables: Mapping[str, VariableRef]) -> None:
        """See `Shapes.read`."""
        self._view = view
        super().read(view, variables)

    def _followed(self, op: Op) -> tuple[Shape, ...]:
        if op.type in _SHAPE_OPERAND and len(op.inputs) > _SHAPE_OPERAND[op.type]:
            return (self._constant(op.inputs[_SHAPE_OPERAND[op.type]]),)
        if op.type in _KEPT and op.inputs:
            return (self.of(op.inputs[0]),)
        if op.type == "XlaCallModule":
            return tuple(map(shape_of, op.node.attr["Sout"].list.shape))
        if op.type == "XlaReduceScatter":
            return (self._scattered(op),)
        if op.type == "Transpose":
            return (self._transposed(op),)
        return super()._followed(op)

    def _scattered(self, op: Op) -> Shape:
        whole, groups = self.of(op.inputs[0]), self._array(op.inputs[1])
        axis = self._number(op.inputs[2])
        if whole is None or groups is None or axis is None or not 0 <= axis < len(whole):
            return None
        size = groups.shape[-1] if groups.ndim == 2 else 0
        if size < 1:
            return None
        return (*whole[:axis], whole[axis] // size, *whole[axis + 1 :])

    def _transposed(self, op: Op) -> Shape:
        whole, order = self.of(op.inputs[0]), self._constant(op.inputs[1])
        if whole is None or order is None or sorted(order) != list(range(len(whole))):
            return None
        return tuple(whole[axis] for axis in order)

    def _number(self, value: Value) -> int | None:
        found = self._array(value)
        return int(found) if found is not None and found.shape == () else None

    def _constant(self, value: Value) -> Shape:
        """A constant list of sizes; None for anything else, and where a size is left open."""
        found = self._array(value)
        if found is None or found.ndim != 1 or found.dtype.kind != "i" or (found < 0).any():
            return None
        return tuple(map(int, found))

    def _array(self, value: Value) -> Any | None:
        tensor = self._view.constant(value) if self._view is not None else None
        if tensor is None:
            return None
        try:
            return tf.make_ndarray(tensor)
        # One out of a file may contradict itself in any way.
        except Exception:
            return None
