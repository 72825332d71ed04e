"""A variable as the values that it holds one after the other during a step, and who sees which.

Each write ends one value and makes the next. That holds as far as the order of the accesses is
certain. It is a matter of control edges (and of data edges by luck): where they leave two accesses
unordered that must not be, the graph is a race and the variable is refused.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Mapping

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.accesses import VariableAccess, accesses


@dataclasses.dataclass(frozen=True)
class VariableValue:
    """One value of a variable.

    Attributes:
        number: How many writes come before it, the one that makes it included.
        write: What makes it; None for what the variable held before the step.
        reads: The ops that take the handle while it is held, and leave it as it is.
    """

    number: int
    write: VariableAccess | None
    reads: tuple[Op, ...]

    @property
    def after(self) -> tuple[str, ...]:
        """What to wait for to see it: the write, by name; () where there is none."""
        return () if self.write is None else (self.write.op.name,)

    @property
    def whole_reads(self) -> list[Op]:
        """The ops that read all of it."""
        return [op for op in self.reads if op.type == READ]


@dataclasses.dataclass(frozen=True)
class VariableValues:
    """All values of a variable.

    Attributes:
        values: The values, each at its number.
        seen: For each op that takes the handle, by name, the number of the value that it finds.
    """

    values: tuple[VariableValue, ...]
    seen: Mapping[str, int]

    @property
    def writes(self) -> list[VariableAccess]:
        """What writes the variable, or may, in order."""
        return [value.write for value in self.values if value.write is not None]

    @property
    def own_writes(self) -> list[Op]:
        """The ops among them that write it themselves, not by a function that they call."""
        return [write.op for write in self.writes if write.access.is_own_write]

    def in_order(self) -> Iterator[tuple[Op, list[Op]]]:
        """Each op that takes the handle, in order, with those that it must come after.

        A write comes after the one before it and all reads between them, a read after its write.
        """
        before: list[Op] = []
        for value in self.values:
            made = [] if value.write is None else [value.write.op]
            yield from ((op, before) for op in made)
            yield from ((op, made) for op in value.reads)
            before = [*made, *value.reads]

    def made_by(self, write: str) -> VariableValue:
        """What the variable holds after a write, given its name, and before the next one."""
        return self.values[self.seen[write] + 1]

    def seen_by(self, op: str) -> VariableValue:
        """What the variable holds as an op finds it that takes its handle, given its name."""
        return self.values[self.seen[op]]


# The values of variables by their handles, by the view that has those.
_by_handle: weakref.WeakKeyDictionary[GraphView, dict[str, VariableValues]] = (
    weakref.WeakKeyDictionary()
)


def values_of(view: GraphView, handle: str) -> VariableValues:
    """The values that a variable holds in a graph.

    Args:
        view: The graph.
        handle: The op that yields the variable's handle.
    """
    known = _by_handle.setdefault(view, {})
    if handle not in known:
        found: list[tuple[VariableAccess | None, list[Op]]] = [(None, [])]
        seen: dict[str, int] = {}
        for access in accesses(view, handle):
            seen[access.op.name] = len(found) - 1
            if access.access.is_read:
                found[-1][1].append(access.op)
            else:
                found.append((access, []))
        values = (VariableValue(n, w, tuple(reads)) for n, (w, reads) in enumerate(found))
        known[handle] = VariableValues(tuple(values), seen)
    return known[handle]


def check_order(view: GraphView, handle: str) -> Refusal | None:
    """Why the accesses of one variable are a race, or None when their order is certain.

    Args:
        view: The graph.
        handle: The op that yields the variable's handle.
    """
    for op, earlier in values_of(view, handle).in_order():
        waits = {*op.sources}
        indirect = [other for other in earlier if other.name not in waits]
        unordered = view.first_unordered(indirect, op) if indirect else None
        if unordered is not None:
            return refusals.Updates.UNORDERED.at(op.name, earlier=unordered.name, handle=handle)
    return None
