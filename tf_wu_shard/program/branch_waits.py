"""What waits for what where a branch op is written out: the accesses in its place, and effects."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.variable_values import values_of


class Waits:
    """What the accesses wait for that take a branch op's place.

    The branch op waits for the accesses of all its variables. An access of one of them that waits
    for the writes of the others, as theirs do for its own, stands in a cycle as soon as two writes
    of each become one. So it waits for those of its own alone, unless some of them order it by way
    of others only.
    """

    def __init__(
        self, view: GraphView, op: Op, instead: Mapping[str, Mapping[str, list[str]]]
    ) -> None:
        """Looks at what a branch op waits for.

        Args:
            view: The graph.
            op: The branch op, as it was.
            instead: For each branch op that was written out before, by handle, what accesses that
                in its place.
        """
        self._view = view
        self._op = op
        self._instead = instead
        # What all of them wait for, and what only those of one variable do, by its handle.
        self._always: list[str] = []
        self._own: dict[str, list[str]] = {}
        for name in op.controls:
            if name in instead:
                for handle, others in instead[name].items():
                    self._own.setdefault(handle, []).extend(others)
            elif is_call(view.ops[name].type) or not (taken := _taken(view, view.ops[name])):
                self._always.append(name)
            else:
                for handle in taken:
                    self._own.setdefault(handle, []).append(name)

    def of(self, handle: str) -> list[str]:
        """The control inputs of an access of one of the variables, by its handle."""
        seen = values_of(self._view, handle).seen_by(self._op.name)
        earlier = [read.name for read in seen.reads if read.position < self._op.position]
        if self._everything.issuperset([*seen.after, *earlier]):
            own = self._own.get(handle, [])
            return [f"^{name}" for name in dict.fromkeys((*self._always, *own))]
        return [f"^{name}" for name in self._op.controls]

    @functools.cached_property
    def _everything(self) -> frozenset[str]:
        return frozenset(self._op.controls)


def _taken(view: GraphView, op: Op) -> set[str]:
    """The variables that an op takes, by their handles."""
    return {value.op for value in op.inputs if value.op in view.variables}
