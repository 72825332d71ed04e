"""The nearest value by which everything enters that each replica would have of its own.

In a step that was traced on one device, what depends on the function's own inputs, on random
numbers or on other state is followed through the graph, and through the variables that are written.
The nearest common dominator of some values is the last value that lies on every way from such an
input to any of them (Cooper, Harvey and Kennedy, 2001; the graph has no cycles).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rules.variables import READ, WHOLE_READS
from tf_wu_shard.rules.writes import WRITES, is_plain_write, num_written

# The number of what lies before all inputs.
_ROOT = 0


class Dominators:
    """The nearest dominator of everything that depends on what each replica has of its own.

    Attributes:
        shared: Values that are taken for the same on all replicas.
        writes: The ops that write variables, by the variables' keys.
    """

    def __init__(self, view: GraphView, shared: Set[Value] = frozenset()) -> None:
        """Follows the graph.

        Args:
            view: The graph; its `own_inputs` are what each replica would have of its own.
            shared: Values that are taken for the same on all replicas, whatever they depend on.
        """
        self._view = view
        self.shared = shared
        self._parents = [_ROOT]
        self._depths = [0]
        self._jumps = [_ROOT]
        self._names = [""]
        # The number of an op or of one of its results; none of what all replicas share.
        self._ops: dict[str, int] = {}
        self._results: dict[Value, int] = {}
        self._values: dict[int, Value] = {}
        # What was last written to variables, by key.
        self._held: dict[str, int] = {}
        self.writes: dict[str, list[Op]] = {}
        for op in view:
            self._enter(op)

    def of(self, value: Value) -> int | None:
        """The number of a value; None where all replicas have the same."""
        if value in self.shared:
            return None
        if value.op not in self._ops and value not in self._results:
            return None
        if value not in self._results:
            self._results[value] = self._new(self._ops[value.op], value.op)
            self._values[self._results[value]] = value
        return self._results[value]

    @property
    def held(self) -> set[str]:
        """Keys of the variables that are written from what each replica has of its own."""
        return set(self._held)

    def common(self, numbers: Iterable[int]) -> int:
        """The nearest common dominator."""
        found = list(numbers)
        nearest = found[0]
        for number in found[1:]:
            nearest = self._common(nearest, number)
        return nearest

    def _common(self, one: int, other: int) -> int:
        depths, parents, jumps = self._depths, self._parents, self._jumps
        if depths[one] < depths[other]:
            one, other = other, one
        while depths[one] > depths[other]:
            far = jumps[one]
            one = far if depths[far] >= depths[other] else parents[one]
        while one != other:
            apart = jumps[one] != jumps[other]
            one, other = (jumps[one], jumps[other]) if apart else (parents[one], parents[other])
        return one

    def before(self, number: int, holds: Callable[[str], bool]) -> int:
        """The nearest dominator, or the number itself, of which something no longer holds.

        Args:
            number: Where to begin.
            holds: What is asked of an op, by name; what holds of one holds of all behind it.
        """
        while number != _ROOT and holds(self._names[number]):
            far = self._jumps[number]
            skips = far != _ROOT and holds(self._names[far])
            number = far if skips else self._parents[number]
        return number

    def value(self, number: int) -> Value | None:
        """The value of a number, or of the nearest dominator that is one value."""
        while number != _ROOT and number not in self._values:
            number = self._parents[number]
        return self._values.get(number)

    def _new(self, parent: int, name: str) -> int:
        depths, jumps = self._depths, self._jumps
        # Myers (1983): with one more pointer each, any dominator is a logarithm of steps away.
        far = jumps[parent]
        even = depths[parent] - depths[far] == depths[far] - depths[jumps[far]]
        jumps.append(jumps[far] if even else parent)
        self._parents.append(parent)
        self._names.append(name)
        depths.append(depths[parent] + 1)
        return len(depths) - 1

    def _enter(self, op: Op) -> None:
        if op.passes_each_on:
            for index, value in enumerate(op.inputs):
                number = self.of(value)
                if number is not None:
                    self._name(op.result_of(index), self._new(number, op.name))
            return
        keys = [self._view.variables[v.op].key for v in op.inputs if v.op in self._view.variables]
        numbers = [n for v in op.inputs if (n := self.of(v)) is not None]
        written = self._written(op, keys)
        if not is_plain_write(op.type):
            numbers += [self._held[key] for key in keys if key in self._held]
        if self._is_own(op):
            numbers = [_ROOT]
        for key in written:
            self.writes.setdefault(key, []).append(op)
        if not numbers:
            return
        number = self._new(self.common(numbers), op.name)
        self._ops[op.name] = number
        for key in written:
            before = [self._held[key]] if key in self._held else []
            self._held[key] = self.common([number, *before])

    def _name(self, value: Value, number: int) -> None:
        self._results[value] = number
        self._values[number] = value

    def _written(self, op: Op, keys: Sequence[str]) -> Sequence[str]:
        """The variables among those whose handles an op takes that it may write."""
        if op.type == READ or op.type in WHOLE_READS or not keys:
            return ()
        if op.type in WRITES:
            return keys[: num_written(op.type)]
        if not is_call(op.type) and op.name not in self._view.effects:
            return ()
        # What is done to every part of a weight alike is done whatever its gradient is.
        part_wise = self._view.part_wise.get(op.name, ())
        return [key for key in keys if key not in part_wise]

    def _is_own(self, op: Op) -> bool:
        """Whether each replica would have a result of its own, whatever enters."""
        if op.name in self._view.variables:
            return False
        if op.name in self._view.own_inputs:
            return True
        reads = op.type == READ or op.type in WHOLE_READS
        stateful = self._view.is_stateful(op.type) and op.type not in ("Placeholder", "NoOp")
        return stateful and not reads and op.type not in WRITES and not is_call(op.type)
