"""Numbers for the values that the copies of a step are made of: equal numbers are equal values.

Two values are equal if they are one value, or constants of one content, or if ops that do the same
make them of values that are equal. What is everybody's is taken to be equal on all: what one
variable holds after so many writes, all that is summed, whatever it is, and shapes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

from tf_wu_shard.graph.calls import LOOPS, callee_names, first_argument, is_call
from tf_wu_shard.graph.function_body import ARGUMENT, function_view
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import ASSIGN
from tf_wu_shard.step import origins
from tf_wu_shard.step.held_values import HeldValues
from tf_wu_shard.step.numbering import Numbering, NumberOfArgument
from tf_wu_shard.step.origins import Origin
from tf_wu_shard.step.replica_matching import ReplicaMatcher


class Input(NamedTuple):
    """What a graph is handed that may be a replica's own.

    Attributes:
        meaning: Equal for what is equal.
        origin: Where it comes from.
    """

    meaning: Hashable
    origin: Origin = Origin.OWN


# Told of inputs, by name, with the copies that are made of each, a bit for each, and how many
# copies there are: those that may be a replica's own.
Handed: TypeAlias = Callable[[Mapping[str, int], int], Mapping[str, Input]]


def each_its_own(inputs: Mapping[str, int], copies: int) -> Mapping[str, Input]:
    """What is known of inputs that nobody knows more of: all are different."""
    return {name: Input(name) for name in inputs}


# Their results are what they are handed, or what the variable holds whose handle it is.
_UNCHANGED = frozenset({"Identity", READ})

# Their two operands may change places, and not a bit changes.
_COMMUTATIVE = frozenset({"Add", "AddV2", "Mul"})

# Which Python function it calls has another name in each op.
_PYTHON = "PyFuncStateless"


class CopyValues:
    """Some values, each of which one or several copies are made of, and what is behind them."""

    def __init__(
        self,
        view: GraphView,
        made_of: Mapping[Value, int],
        copies: int,
        *,
        is_whole: bool = True,
        handed: Handed = each_its_own,
        own_reads: Set[Value] = frozenset(),
        numbering: Numbering | None = None,
        handles: Set[str] = frozenset(),
    ) -> None:
        """Numbers them.

        Args:
            view: The graph.
            made_of: The values, each with the copies that are made of it, a bit for each.
            copies: How many copies the graph has.
            is_whole: Whether there are no other copies elsewhere.
            handed: What the graph is handed.
            own_reads: Reads of variables of which each replica has another value.
            numbering: The numbers of the graph that calls this one.
            handles: The ops that yield handles of variables, besides those that the graph knows.
        """
        self._view = view
        self._own_reads = own_reads
        self._everybody, self._is_whole = 2**copies - 1, is_whole
        self._numbering = numbering or Numbering()
        self._handles = view.variables.keys() | handles
        self._held = HeldValues(view, self._handles)
        self._before = functools.cache(functools.partial(origins.before, view))
        matcher = ReplicaMatcher(view, {})
        self._content = functools.cache(lambda name: matcher.content(view.ops[name]))
        self._copies = self._with_what_is_behind(made_of)
        inputs = {v.op: of for v, of in self._copies.items() if origins.is_input(view, v)}
        self._handed = handed(inputs, copies) if inputs else {}
        self._loops: dict[str, list[int]] = {}
        self._numbers: dict[Value, int] = {}
        self._origins: dict[Value, Origin] = {}
        self._foremost: dict[Value, Value] = {}
        for value in reversed(self._copies):
            self._numbers[value] = self._number(value)

    def _with_what_is_behind(self, made_of: Mapping[Value, int]) -> dict[Value, int]:
        """All that the values are made of, with the copies it is in; what takes it comes first."""
        found = reachable(made_of, self._before)
        ordered = sorted(found, key=lambda v: self._view.ops[v.op].position, reverse=True)
        copies = dict.fromkeys(ordered, 0) | dict(made_of)
        for value in ordered:
            for operand in self._before(value):
                copies[operand] |= copies[value]
        return copies

    def number(self, value: Value) -> int:
        """The number of a value."""
        return self._numbers[value]

    def origin(self, value: Value) -> Origin:
        """Where a value comes from."""
        return self._origins[value]

    def foremost(self, value: Value) -> Value:
        """The first of what may be a replica's own in a value, else of the constants, or the rest.

        What not all copies have comes before what they share.
        """
        return self._foremost[value]

    def parting(self, value: Value, other: Value) -> Value:
        """What a value is made of that parts it from another: of that alone both do the same."""
        taken = functools.partial(self._held.taken, known=self._numbers)
        while True:
            first, second = taken(value, self._before(value)), taken(other, self._before(other))
            differ = [
                p for p in zip(first, second, strict=False) if len({*map(self.number, p)}) > 1
            ]
            if not differ or len(first) != len(second):
                return value
            value, other = differ[0]

    def does(self, op: Op) -> Hashable:
        """What an op does, whatever it does that to; of a call what it writes tells the rest."""
        return op.type if is_call(op.type) else self._content(op.name)

    def is_alike_everywhere(self, value: Value) -> bool:
        """Whether copies that are elsewhere have a value as well, if all here have it."""
        return self._is_whole or self._is_shared(self._foremost[value])

    def _rank(self, leaf: Value) -> tuple[bool, int, int, int]:
        position = self._view.ops[leaf.op].position
        return self._is_shared(leaf), -self._origins[leaf], position, leaf.index

    def _is_shared(self, leaf: Value) -> bool:
        """Whether all copies have something, those included that are elsewhere."""
        if self._origins[leaf] is not Origin.OWN:
            return True
        if self._copies[leaf] != self._everybody:
            return False
        # Own inputs are those of a process among others.
        is_alike = leaf.op not in self._view.own_inputs or self._view.shape(leaf) == ()
        return self._is_whole or (origins.is_input(self._view, leaf) and is_alike)

    def _leaf(self, value: Value) -> tuple[Hashable, Origin] | None:
        """What a value is that is not made of others alone; None of one that is."""
        op = self._view.producer(value)
        if op.type == "Const":
            return self._content(op.name), Origin.CONSTANT
        if origins.is_input(self._view, value):
            handed = self._handed.get(value.op)
            if handed is None:
                return op.type, Origin.EVERYBODYS
            known = isinstance(handed.meaning, NumberOfArgument)
            return (handed.meaning if known else handed), handed.origin
        origin = origins.brought_in(self._view, value)
        if value in self._own_reads:
            return (self._numbering.within, value), Origin.OWN
        if is_call(op.type) and origin is not Origin.EVERYBODYS:
            # It brings in what its functions do.
            return self._meaning(value), origin
        if origin is Origin.OWN:
            return (self._numbering.within, value), origin
        if op.name in self._view.variables:
            return ("held", self._view.variables[op.name].key), origin
        return None if self._before(value) else (op.type, origin)

    def _number(self, value: Value) -> int:
        behind, leaf = self._before(value), self._leaf(value)
        meaning, origin = leaf or (None, Origin.EVERYBODYS)
        self._origins[value] = max([origin, *(self._origins[operand] for operand in behind)])
        leaves = [self._foremost[operand] for operand in behind]
        if not behind or origin is Origin.OWN:
            leaves.append(value)
        self._foremost[value] = min(leaves, key=self._rank)
        op = self._view.producer(value)
        if leaf is not None:
            if isinstance(meaning, NumberOfArgument):
                return meaning.number
            return self._numbering.number(meaning)
        if op.type in _UNCHANGED or op.passes_each_on:
            return self._number_at(op, behind[0])
        if self._copies[value] == self._everybody and self._origins[value] is Origin.OWN:
            return self._numbering.number((self._numbering.within, value))
        return self._numbering.number(self._meaning(value))

    def _number_at(self, op: Op, operand: Value) -> int:
        """The number of what an op takes; of a handle, that of what the variable holds by then."""
        value, later = self._held.at(op, operand, self._numbers)
        number = self._numbers[value]
        first = self._first_value(operand, self._held.initialization(op, operand))
        if first is not None:
            return first
        return self._numbering.number(("later", number, later)) if later else number

    def _first_value(self, handle: Value, branch: Op | None) -> int | None:
        """The number of what a branch gives a variable that has no value yet.

        Where a step makes a variable, the first copy is given one, and the others what that holds.
        """
        if branch is None:
            return None
        place = branch.inputs.index(handle) - first_argument(branch.type)
        index = len(self._view.results(branch.name)) + place
        done = [self._of_call(branch, name)[index] for name in callee_names(branch.node)]
        match [writes for writes in done if writes]:
            case [[[(op_type, *_), int(number)]]] if op_type == ASSIGN:
                return number
        return None

    def _meaning(self, value: Value) -> Hashable:
        """What an op does for one of its results, or for what it writes as a call, and of what."""
        op = self._view.producer(value)
        if op.type in LOOPS:
            return self._of_loop(op, value.index)
        if is_call(op.type):
            # What the functions do tells what of.
            of_each = [self._of_call(op, name)[value.index] for name in callee_names(op.node)]
            told = map(self._numbers.__getitem__, op.inputs[: first_argument(op.type)])
            return op.type, *of_each, *told
        of = [self._number_at(op, operand) for operand in self._before(value)]
        if op.type in _COMMUTATIVE:
            of.sort()
        does = op.type if op.type == _PYTHON else self._content(op.name)
        return does, value.index, *of

    def _of_loop(self, op: Op, index: int) -> Hashable:
        """What a loop makes one of its results of, or what it writes.

        Two results of one loop are equal if they begin so and the body makes each the same of what
        are equal; those are told by the first of them.
        """
        if op.name not in self._loops:
            self._loops[op.name] = self._alike_in_loop(op)
        first = self._loops[op.name][index]
        of = [self._number_at(op, operand) for operand in self._before(Value(op.name, first))]
        is_own = origins.brought_in(self._view, Value(op.name, index)) is Origin.OWN
        which = (self._numbering.within, op.name) if is_own else None
        return self._content(op.name), which, first, *of

    def _alike_in_loop(self, op: Op) -> list[int]:
        """For each result of a loop, and each argument that it writes, the first that is equal."""
        everything = [*range(2 * len(op.inputs))]
        asked = [value for value in self._copies if value.op == op.name]
        body_name = callee_names(op.node)[-1]
        body = function_view(self._view, body_name, op.inputs)
        if len(asked) < 2 or body is None or self._numbering.is_within(body_name):
            return everything
        call = (op.name, body_name)
        classes: list[Hashable] = [*self._numbers_at(op, op.inputs)]
        while True:
            handed = {
                number: Input(("carried", one), self._origins.get(operand, Origin.EVERYBODYS))
                for number, (one, operand) in enumerate(zip(classes, op.inputs, strict=True))
            }
            made = self._made_in(body, call, handed, op.inputs)
            further = [*zip(classes, made[: len(classes)], strict=True)]
            if len(set(further)) == len(set(classes)):
                written = [("written", one) for one in made[len(classes) :]]
                found = [*classes, *written]
                return [found.index(one) for one in found]
            classes = [further.index(one) for one in further]

    def _of_call(self, op: Op, name: str) -> list[Hashable]:
        """What a function makes its results of in a call, and then what it writes to arguments."""
        operands = op.inputs[first_argument(op.type) :]
        results = self._view.results(op.name)
        numbers = tuple(self._numbers_at(op, operands))
        made_of = [Value(op.name, number) for number in range(len(results) + len(operands))]
        is_own = any(origins.brought_in(self._view, v) is Origin.OWN for v in made_of)
        call: Hashable = (self._numbering.within, op.name, name) if is_own else (name, numbers)
        known = self._numbering.by_call
        if call not in known:
            # Of what is not in the library nothing is claimed, nor of what calls itself.
            known[call] = [None] * len(made_of)
            if self._numbering.has_many_calls:
                which = self._content(op.name), callee_names(op.node).index(name)
                known[call] = [(which, call if is_own else numbers, one.index) for one in made_of]
                return known[call]
            body = function_view(self._view, name, operands)
            if body is not None and not self._numbering.is_within(name):
                handed = {
                    place: Input(NumberOfArgument(number), self._origins[operands[place]])
                    for place, number in enumerate(numbers)
                    if number is not None
                }
                known[call] = self._made_in(body, (op.name, name), handed, operands)
        return known[call]

    def _numbers_at(self, op: Op, operands: Sequence[Value]) -> list[int | None]:
        return [self._number_at(op, v) if v in self._numbers else None for v in operands]

    def _made_in(
        self,
        body: GraphView,
        call: tuple[str, str],
        handed: Mapping[int, Input],
        operands: Sequence[Value],
    ) -> list[Hashable]:
        """What a function makes its results of, and then what it writes to its arguments.

        Args:
            body: The function.
            call: The op that calls it, and its name.
            handed: By number, the arguments that something is known of.
            operands: What it is called with.
        """
        arguments = [op.name for op in body if op.type == ARGUMENT]
        writes = [[*origins.writes(body, argument)] for argument in arguments]
        made = {value for _, value in itertools.chain.from_iterable(writes)} | {*body.outputs}
        of_names = {arguments[number]: one for number, one in handed.items()}
        # None of two copies is made of all of it.
        inside = CopyValues(
            body,
            dict.fromkeys(made, 1),
            copies=2,
            handed=lambda inputs, copies: of_names,
            numbering=self._numbering.inside(call),
            handles={
                n for n, one in zip(arguments, operands, strict=True) if one.op in self._handles
            },
        )
        done = (((inside.does(op), inside.number(value)) for op, value in own) for own in writes)
        return [*map(inside.number, body.outputs), *map(tuple, done)]
