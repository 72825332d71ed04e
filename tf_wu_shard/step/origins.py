"""What values are made of, within functions that ops call too, and what of it is a replica's own.

What was summed over the replicas is everybody's, so the ways end there.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence

from tf_wu_shard.graph.calls import LOOPS, callees, first_argument, is_call
from tf_wu_shard.graph.function_body import ARGUMENT, function_view
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.in_process.recognise import PARTS, SIZED
from tf_wu_shard.grounds.tpu.ops import OWN, REDUCTIONS, REPLICATED_INPUT
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import ASSIGN, WRITES_OF_PARTS, num_written
from tf_wu_shard.step.accesses import accesses

_INPUTS = frozenset({"Placeholder", "Arg", ARGUMENT})

# Of what they tell, nothing is claimed: gradients have shapes that all replicas share.
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})

# What hands out elements of a dataset, to each replica its own.
_ELEMENTS = ("Iterator", "MultiDeviceIterator")

# Stateful ops with this in their names draw numbers, take what comes next, or ask Python, which may
# tell each replica something of its own.
_DRAWS = (
    *("Random", "Rng", "Multinomial", "TruncatedNormal", "StatefulUniform"),
    *("StatefulStandardNormal", "Timestamp", "Dequeue", "PyFunc"),
    *("CandidateSampler", "SampleDistortedBoundingBox"),
)


class Origin(enum.IntEnum):
    """Where a value comes from; what is made of several comes from the last of these."""

    # From the sums over replicas, and from variables that are alike on all.
    EVERYBODYS = 0
    CONSTANT = 1
    # From who calls the function, and answers for it that all replicas are handed the same.
    ANSWERED_FOR = 2
    # From what may be a replica's own.
    OWN = 3


@dataclasses.dataclass(frozen=True)
class MadeOf:
    """What a call makes one of its results of, or what it writes to an argument.

    Attributes:
        arguments: The numbers of the arguments that it is made of.
        origin: Where the rest comes from, which the callee itself brings in.
    """

    arguments: frozenset[int] = frozenset()
    origin: Origin = Origin.EVERYBODYS

    def __or__(self, other: MadeOf) -> MadeOf:
        return MadeOf(self.arguments | other.arguments, max(self.origin, other.origin))


_NOTHING = MadeOf()


def before(view: GraphView, value: Value) -> Sequence[Value]:
    """What the op that yields a value makes it of; nothing of what is everybody's."""
    op = view.producer(value)
    if _is_everybodys(view, op):
        return ()
    if is_call(op.type):
        first = first_argument(op.type)
        made_of = _of_call(view, op)[value.index]
        return [*op.inputs[:first], *(op.inputs[first + n] for n in sorted(made_of.arguments))]
    # Beside a sum it also hands through what a replica has of its own.
    return op.operands_of(value.index)


def behind(view: GraphView, values: Iterable[Value]) -> Iterator[Value]:
    """Some values, and all that they are made of; see `before`."""
    return reachable(values, functools.partial(before, view))


def read_after(view: GraphView, handle: str, write: Op) -> Iterator[Op]:
    """The ops that read what a write has made of a variable, or what later ones add to it."""
    later = (one for one in accesses(view, handle) if one.op.position > write.position)
    for op, access in later:
        if access.is_read:
            yield op
        elif op.type == ASSIGN:
            return


def writes(view: GraphView, handle: str) -> Iterator[tuple[Op, Value]]:
    """The ops that write a variable, each with what: once for each value that it takes.

    What a called function writes to a variable is a value that no op yields: it stands behind the
    results of the call, at the number of the argument that is the handle.
    """
    for op, access in accesses(view, handle):
        if op.type in WRITES_OF_PARTS:
            for value in op.inputs[1:]:
                yield op, value
        elif access.is_own_write:
            for value in op.inputs[num_written(op.type) :]:
                yield op, value
        elif is_call(op.type) and not access.is_read:
            num_results = len(view.results(op.name))
            for number, operand in enumerate(op.inputs[first_argument(op.type) :]):
                if operand.op == handle:
                    yield op, Value(op.name, num_results + number)


def written_with(view: GraphView, handle: str) -> Iterator[Value]:
    """What a variable is written with, see `writes`."""
    return (value for _, value in writes(view, handle))


def variables_behind(view: GraphView, values: Iterable[Value]) -> set[str]:
    """Keys of the variables that some values are made of."""
    ops = {value.op for value in behind(view, values)}
    return {view.variables[name].key for name in ops & view.variables.keys()}


def brought_in(view: GraphView, value: Value) -> Origin:
    """Where that comes from which an op itself brings into a value."""
    op = view.producer(value)
    if is_call(op.type):
        return _of_call(view, op)[value.index].origin
    if op.type == "Const":
        return Origin.CONSTANT
    return Origin.OWN if _is_own(view, op) else Origin.EVERYBODYS


def joins_replicas(op_type: str) -> bool:
    """Whether ops of a type make one value of what all replicas have: a sum, or all of it."""
    return op_type.startswith("Collective") or op_type in REDUCTIONS or op_type == "NcclAllReduce"


def _is_of_all(view: GraphView, op: Op) -> bool:
    """Whether what an op joins is not seen to be what some of the replicas have."""
    if op.type in REDUCTIONS:
        groups = view.constant(op.inputs[1])
        return groups is None or [d.size for d in groups.tensor_shape.dim][:1] == [1]
    if view not in _num_replicas:
        counts = [ref.num_replicas + ref.replicas_elsewhere for ref in view.variables.values()]
        _num_replicas[view] = max(counts, default=0)
    sizes = view.integers(op.inputs[1]) if op.type in SIZED else None
    return not sizes or sizes[0] >= _num_replicas[view]


def is_input(view: GraphView, value: Value) -> bool:
    """Whether a value is what the graph is handed, and no handle of a variable that is known."""
    return view.ops[value.op].type in _INPUTS and value.op not in view.variables


def _is_own(view: GraphView, op: Op) -> bool:
    """Whether what an op yields may be its replica's own."""
    ref = view.variables.get(op.name)
    if ref is not None:
        # Of a variable that is no strategy's there is one, in this process at least.
        return ref.num_replicas + ref.replicas_elsewhere > 1 and not ref.mirrored
    if op.type in _INPUTS:
        return True
    if op.type == REPLICATED_INPUT:
        return len(set(op.inputs)) > 1
    if op.type in OWN | PARTS or op.type.startswith(_ELEMENTS):
        return True
    return any(word in op.type for word in _DRAWS) and view.is_stateful(op.type)


def _is_everybodys(view: GraphView, op: Op) -> bool:
    """Whether what enters an op is not followed: it is summed there, or nothing is claimed."""
    known = op.name in view.variables or op.type in _SHAPES or op.type == REPLICATED_INPUT
    return known or (joins_replicas(op.type) and op.type not in PARTS and _is_of_all(view, op))


# How many replicas there are, by view; 0 where no variable tells.
_num_replicas: weakref.WeakKeyDictionary[GraphView, int] = weakref.WeakKeyDictionary()

# What each call makes its results of, and then what it writes to its arguments, by view and op.
_by_call: weakref.WeakKeyDictionary[GraphView, dict[str, Sequence[MadeOf]]] = (
    weakref.WeakKeyDictionary()
)

# The same of each function, by the view that knows it.
_by_function: weakref.WeakKeyDictionary[GraphView, dict[str, Sequence[MadeOf]]] = (
    weakref.WeakKeyDictionary()
)


def _of_call(view: GraphView, op: Op) -> Sequence[MadeOf]:
    """What a call makes its results of, and then what it writes to its arguments."""
    known = _by_call.setdefault(view, {})
    if op.name not in known:
        called = [[_of_function(view, op, name) for name in names] for _, names in callees(op.node)]
        if op.type in LOOPS:
            (condition,), (body,) = called
            known[op.name] = [_after_loop(index, condition[0], body) for index in range(len(body))]
        else:
            alternatives = itertools.chain.from_iterable(called)
            known[op.name] = [_together(of_all) for of_all in zip(*alternatives, strict=True)]
    return known[op.name]


def _after_loop(index: int, condition: MadeOf, body: Sequence[MadeOf]) -> MadeOf:
    """What a loop makes one of its results of in the end, or what it writes to an argument.

    How often its body runs is part of that, where the body does more than to hand the value on.

    Args:
        index: Which one.
        condition: What it is made of whether the body runs again.
        body: What the body makes its results of, each the argument of that number the next time,
            and then what it writes.
    """
    if body[index] in (_NOTHING, MadeOf(frozenset({index}))):
        return body[index]
    asked = _together([body[index], condition])
    carried = {*reachable(asked.arguments, lambda number: body[number].arguments)}
    found = _together([asked, *(body[number] for number in carried)])
    return dataclasses.replace(found, arguments=frozenset(carried))


def _together(of_several: Iterable[MadeOf]) -> MadeOf:
    found = _NOTHING
    for one in of_several:
        found |= one
    return found


def _of_function(view: GraphView, op: Op, name: str) -> Sequence[MadeOf]:
    """What a function that an op calls makes its results of, and then what it writes."""
    known = _by_function.setdefault(view, {})
    if name not in known:
        operands = op.inputs[first_argument(op.type) :]
        # Of what is not in the library nothing is claimed, nor of what calls itself.
        known[name] = [_NOTHING] * (len(view.results(op.name)) + len(operands))
        body = function_view(view, name, operands)
        if body is not None:
            # What it calls in turn is in the same library.
            _by_function[body] = known
            arguments = [op.name for op in body if op.type == ARGUMENT]
            known[name] = [
                *(_of_values(body, [result]) for result in body.outputs),
                *(_of_values(body, written_with(body, argument)) for argument in arguments),
            ]
    return known[name]


def _of_values(body: GraphView, values: Iterable[Value]) -> MadeOf:
    """What a function makes some values of."""
    arguments, origin = set[int](), Origin.EVERYBODYS
    for value in behind(body, values):
        op = body.producer(value)
        if op.type == ARGUMENT:
            # They come first, in the order of the signature.
            arguments.add(op.position)
        else:
            origin = max(origin, brought_in(body, value))
    return MadeOf(frozenset(arguments), origin)
