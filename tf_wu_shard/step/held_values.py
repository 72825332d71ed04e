"""What variables hold where ops of a graph take their handles, as far as the graph itself says."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Container, Iterable, Set

from tf_wu_shard.graph.calls import IFS
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rules.writes import ASSIGN
from tf_wu_shard.step import origins

# What they yield depends on the one condition that they are handed.
_OF_ONE_CONDITION = frozenset({"Identity", "LogicalNot"})


class HeldValues:
    """What variables of a graph hold at each op."""

    def __init__(self, view: GraphView, handles: Set[str]) -> None:
        """Looks at nothing yet.

        Args:
            view: The graph.
            handles: The ops that yield handles of variables.
        """
        self._view = view
        self._handles = handles
        self._writes = functools.cache(self._writes_of)

    def at(self, op: Op, operand: Value, known: Container[Value]) -> tuple[Value, int]:
        """What an op takes: of a handle, what the variable holds by then.

        Args:
            op: The op.
            operand: One of its operands.
            known: The values that may be an answer.

        Returns:
            What the variable was assigned last, where that is known, and how often it was added to
            or written otherwise since; or the operand itself, with the number of all writes before,
            which is 0 for what is no handle.
        """
        earlier = self._earlier(op, operand)
        for since, write in enumerate(reversed(earlier)):
            if write.type == ASSIGN:
                assigned = write.inputs[1]
                return (assigned, since) if assigned in known else (operand, len(earlier))
        return operand, len(earlier)

    def initialization(self, op: Op, operand: Value) -> Op | None:
        """The branch that was the last to write a variable, if it does so where it has no value."""
        earlier = self._earlier(op, operand)
        if not earlier or earlier[-1].type not in IFS:
            return None
        asked = self._view.producer(earlier[-1].inputs[0])
        while asked.type in _OF_ONE_CONDITION:
            asked = self._view.producer(asked.inputs[0])
        is_asked = asked.type == "VarIsInitializedOp" and asked.inputs[0] == operand
        return earlier[-1] if is_asked else None

    def taken(
        self, value: Value, operands: Iterable[Value], known: Container[Value]
    ) -> list[Value]:
        """What the op that yields a value takes, of some of its operands; see `at`."""
        op = self._view.producer(value)
        return [self.at(op, operand, known)[0] for operand in operands]

    def _earlier(self, op: Op, operand: Value) -> list[Op]:
        writes = self._writes(operand.op)
        return writes[: bisect.bisect_left(writes, op.position, key=lambda one: one.position)]

    def _writes_of(self, name: str) -> list[Op]:
        writes = origins.writes(self._view, name) if name in self._handles else ()
        return [*{op.name: op for op, _ in writes}.values()]
