"""Follows reduced gradients through whatever is computed from them to the variables written.

Unlike the forward slice through ops that have a rule it stops at nothing but what is no part of one
update: single numbers (the norm of a gradient), further reductions, and ops with effects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.rules.handles import num_written
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.accesses import accesses
from tf_wu_shard.weight_update.analysis.forward_slice import ForwardSlice, written_keys
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph


class FallbackSlicer:
    """Follows data in one view, on replica 0."""

    def __init__(self, graph: ReducedGraph) -> None:
        self._view = graph.view
        self._names = graph.names
        self._handles = graph.handles
        self._carriers = {name for r in graph.reductions for name in r.carriers}

    def slice_from(self, key: int) -> ForwardSlice:
        """Follows one reduced gradient to the variables that are written with it.

        Args:
            key: The reduction.
        """
        pending, _ = self._reach(self._names.of(key, 0))
        slice_ = ForwardSlice({key}, [], None)
        while pending:
            variable = pending.pop(0)
            if variable in slice_.variables:
                continue
            slice_.variables.append(variable)
            if 0 not in self._handles.get(variable, {}):
                slice_.refusal = slice_.refusal or refusals.Replicas.NOT_MIRRORED.at(variable)
                continue
            pending += self._written_with(variable)
        return slice_

    def _written_with(self, variable: str) -> list[str]:
        """The variables written with what is read of one after it was written.

        A read that leads to another reduction is a further forward pass, and so one from outside.
        """
        found: list[str] = []
        written = False
        for access in accesses(self._view, self._handles[variable][0]):
            written = written or not access.access.is_read
            if written and access.op.type == READ:
                reached, reduced_again = self._reach([Value(access.op.name)])
                if not reduced_again and all(0 in self._handles.get(v, {}) for v in reached):
                    found += reached
        return found

    def _reach(self, start: Iterable[Value]) -> tuple[list[str], bool]:
        """The variables written with what is computed from values; whether it is reduced again."""
        found: list[str] = []
        reduced_again = False
        stack = [value for value in start if self._is_tensor(value)]
        seen = set(stack)
        while stack:
            value = stack.pop(0)
            for op, slot in self._view.consumers(value):
                if num_written(op.type):
                    found.extend(written_keys(self._view, op))
                elif op.name in self._carriers:
                    reduced_again = True
                elif self._yields(op):
                    through = op.type == "IdentityN"
                    results = (Value(op.name, slot),) if through else self._view.results(op.name)
                    new = [v for v in results if v not in seen and self._is_tensor(v)]
                    seen.update(new)
                    stack += new
        return found, reduced_again

    def _yields(self, op: Op) -> bool:
        """Whether all that comes of an op may be what it yields; calls are looked into later."""
        return is_call(op.type) or not self._view.is_stateful(op.type)

    def _is_tensor(self, value: Value) -> bool:
        """Whether a value may have several elements."""
        shape = self._view.shape(value)
        return shape is None or math.prod(shape) > 1
