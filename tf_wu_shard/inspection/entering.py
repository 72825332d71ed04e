"""Where a gradient enters the update of its weight, in a step that was traced on one device.

On one device nothing is reduced. On N replicas, what each computes from its own part of the batch
would be; so the place is where all of that enters the update by *one* value. Values that depend on
the function's own inputs, on random numbers or on other state are followed through the graph. Of
the writes of a weight, and of the variables that its update reads and writes besides (its slots),
the last value is taken that lies on every way from such an input to any of these writes: their
nearest common dominator (Cooper, Harvey and Kennedy, 2001; the graph has no cycles). What lies
behind it depends on it and on values that all replicas share; to have it summed there is what
data-parallel training does. Where there is no such value, nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set

from tf_wu_shard.analysis.accesses import is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Refusal
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.sparse import SPARSE_WRITES
from tf_wu_shard.rules.variables import READ, WRITES

# The number of what lies before all inputs.
_ROOT = 0

# An update that goes through more variables than this is none that was seen.
_MOST_STATES = 64


class Dominators:
    """The nearest dominator of everything that depends on what each replica has of its own."""

    def __init__(self, view: GraphView) -> None:
        """Follows the graph.

        Args:
            view: The graph; its `own_inputs` are what each replica would have of its own.
        """
        self._view = view
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
        if op.type == "IdentityN":
            for index, value in enumerate(op.inputs):
                number = self.of(value)
                if number is not None:
                    self._name(Value(op.name, index), self._new(number, op.name))
            return
        keys = [self._view.variables[v.op].key for v in op.inputs if v.op in self._view.variables]
        numbers = [n for v in op.inputs if (n := self.of(v)) is not None]
        written = self._written(op, keys)
        if op.type not in WRITES:
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
        if op.type == READ or not keys:
            return ()
        if op.type in WRITES:
            return keys[:1]
        if op.type in FUSED:
            return keys[: FUSED[op.type].num_handles]
        if op.type in SPARSE_WRITES:
            return keys[: SPARSE_WRITES[op.type]]
        if not is_call(op.type) and not self._view.has_effect(op):
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
        known = op.type in WRITES or op.type in FUSED or op.type in SPARSE_WRITES
        stateful = self._view.is_stateful(op.type) and op.type not in ("Placeholder", "NoOp")
        return stateful and op.type != READ and not known and not is_call(op.type)


class Entering:
    """The gradients of a step, each where it enters the update of a weight.

    Attributes:
        gradients: The values, each once, in the order of the graph.
        refusals: For each weight that has none, why; the place is what is written to it.
    """

    def __init__(self, view: GraphView) -> None:
        """Looks for them.

        Args:
            view: The graph.
        """
        self._view = view
        self._dominators = Dominators(view)
        self._sizes = {ref.key: math.prod(ref.shape or ()) for ref in view.variables.values()}
        trained = {ref.key for ref in view.variables.values() if ref.trainable}
        self._states = _states_behind(view, self._dominators.held - trained)
        self.refusals: list[Refusal] = []
        found: dict[Value, None] = {}
        for handle, ref in view.variables.items():
            writes = self._dominators.writes.get(ref.key, [])
            if not ref.trainable or not writes:
                continue
            outcome = self._gradient(handle, ref.shape, writes)
            if isinstance(outcome, Refusal):
                self.refusals.append(outcome)
            elif outcome is not None:
                found[outcome] = None
        self.gradients = sorted(found, key=lambda value: view.producer(value).position)

    def _gradient(
        self, handle: str, shape: tuple[int, ...] | None, writes: Sequence[Op]
    ) -> Value | Refusal | None:
        """The gradient of a weight; None where nothing of a replica's own is written to it."""
        written = [value for op in writes for value in self._operands(op)]
        where = written[0].op if written else writes[0].name
        where = next((v.op for v in written if self._dominators.of(v) is not None), where)
        if any(op.type in SPARSE_WRITES for op in writes):
            return Refusal(where, "its gradient is sparse: rows and values enter apart")
        if any(op.type not in WRITES and op.type not in FUSED for op in writes):
            op = next(op for op in writes if op.type not in WRITES and op.type not in FUSED)
            return Refusal(op.name, f"its update runs inside of {op.type}, a branch or a loop")
        slots = self._slots(written, math.prod(shape or ()))
        if slots is None:
            return Refusal(where, f"it depends on more than {_MOST_STATES} variables of the step")
        others = (write for key in slots for write in self._dominators.writes.get(key, ()))
        entering = [*written, *(value for write in others for value in self._operands(write))]
        numbers = [n for value in entering if (n := self._dominators.of(value)) is not None]
        if not numbers:
            return None
        # A slot belongs to the update: what was computed with it is no gradient yet.
        number = self._dominators.before(
            self._dominators.common(numbers),
            lambda name: not slots.isdisjoint(self._states.get(name, frozenset())),
        )
        value = self._dominators.value(number)
        if value is None:
            return Refusal(
                where,
                "what replicas compute from their own batches enters its update by more than one"
                " value: where its gradient would be summed is ambiguous",
            )
        return self._fitting(value, shape, where)

    def _fitting(self, value: Value, shape: tuple[int, ...] | None, where: str) -> Value | Refusal:
        size = self._view.shape(value)
        if size is None or shape is None:
            return Refusal(where, f"the shape of its gradient {value} is not known")
        if math.prod(size) != math.prod(shape):
            return Refusal(
                where,
                f"what replicas compute from their own batches enters its update by {value}, of"
                f" shape {list(size)}: that is no gradient of a weight of shape {list(shape)}",
            )
        return value

    def _operands(self, op: Op) -> tuple[Value, ...]:
        """What a write writes, handles left out."""
        return tuple(v for v in op.inputs if v.op not in self._view.variables)

    def _slots(self, written: Sequence[Value], size: int) -> frozenset[str] | None:
        """The variables that an update goes through besides its weight, by key; None of too many.

        That is whatever the values written to the weight depend on that is not trained and is
        written in this step from the batch, and so on from there. What has one element is no slot
        of a larger weight: it scales a loss.
        """
        found: set[str] = set()
        stack = list(written)
        while stack:
            states = self._states.get(stack.pop().op, frozenset())
            for key in states - found:
                if len(found) >= _MOST_STATES:
                    return None
                if self._sizes[key] == 1 and size != 1:
                    continue
                found.add(key)
                for write in self._dominators.writes[key]:
                    stack += self._operands(write)
        return frozenset(found)


def _states_behind(view: GraphView, states: Set[str]) -> dict[str, frozenset[str]]:
    """For each op that depends on the values of some variables, by name: of which, by key.

    Args:
        view: The graph.
        states: The variables' keys.
    """
    found: dict[str, frozenset[str]] = {}
    for op in view:
        behind: frozenset[str] = frozenset()
        for value in op.inputs:
            ref = view.variables.get(value.op)
            own = frozenset({ref.key}) if ref is not None and ref.key in states else frozenset()
            more = own or found.get(value.op)
            # Which ones no longer matters beyond this; an update refuses so many.
            if more and not more <= behind and len(behind) <= _MOST_STATES:
                behind |= more
        if behind:
            found[op.name] = behind
    return found
