"""What values are made of, within functions that ops call too, and what of it is a replica's own.

What was summed over the replicas is everybody's, so the ways end there.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tf_wu_shard.graph.calls import LOOPS, callees, first_argument, is_call
from tf_wu_shard.graph.function_body import ARGUMENT, function_view
from tf_wu_shard.graph.op import Op, Value, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import OWN, REDUCTIONS, REPLICATED_INPUT
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import ASSIGN, num_written
from tf_wu_shard.step.accesses import accesses

_INPUTS = frozenset({"Placeholder", "Arg", ARGUMENT})

# Of what they tell, nothing is claimed: gradients have shapes that all replicas share.
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})

# What hands out elements of a dataset, to each replica its own.
_ELEMENTS = ("Iterator", "MultiDeviceIterator", "OptionalGetValue")

# Stateful ops with this in their names draw numbers, take what comes next, or ask Python, which may
# tell each replica something of its own.
_DRAWS = (
    *("Random", "Rng", "Multinomial", "TruncatedNormal", "StatefulUniform"),
    *("StatefulStandardNormal", "Timestamp", "Dequeue", "PyFunc"),
)

# What may be a replica's own: the value that brings it in, as text, after the names of the calls
# and functions that this is in; of a constant, its serialized content.
Source: TypeAlias = tuple[str, ...] | bytes


@dataclasses.dataclass(frozen=True)
class Origins:
    """What a result of a call is made of, or what it writes to an argument.

    Attributes:
        arguments: The numbers of the arguments that it is made of.
        own: What the callee itself brings in that may be a replica's own.
    """

    arguments: frozenset[int] = frozenset()
    own: frozenset[Source] = frozenset()

    def __or__(self, other: Origins) -> Origins:
        return Origins(self.arguments | other.arguments, self.own | other.own)


_NOTHING = Origins()


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


def after(view: GraphView, value: Value) -> Iterator[Value]:
    """What is made of a value, but for what is everybody's; what is written is read again."""
    for op, slot in view.consumers(value):
        if op.passes_each_on:
            yield op.result_of(slot)
        elif is_call(op.type):
            number = slot - first_argument(op.type)
            for index, made_of in enumerate(_of_call(view, op)):
                if number < 0 or number in made_of.arguments:
                    yield Value(op.name, index)
        elif slot >= num_written(op.type) > 0:
            for handle in op.inputs[: num_written(op.type)]:
                for read in _read_after(view, handle.op, op):
                    yield from view.results(read.name)
        elif not _is_everybodys(view, op):
            yield from view.results(op.name)


def _read_after(view: GraphView, handle: str, write: Op) -> Iterator[Op]:
    """The ops that read what a write has made of a variable, or what later ones add to it."""
    later = (one for one in accesses(view, handle) if one.op.position > write.position)
    for op, access in later:
        if access.is_read:
            yield op
        elif op.type == ASSIGN:
            return


def written_with(view: GraphView, handle: str) -> Iterator[Value]:
    """What a variable is written with.

    What a called function writes to a variable is a value that no op yields: it stands behind the
    results of the call, at the number of the argument that is the handle.
    """
    for op, access in accesses(view, handle):
        if access.is_own_write:
            yield from op.inputs[num_written(op.type) :]
        elif is_call(op.type) and not access.is_read:
            num_results = len(view.results(op.name))
            for number, operand in enumerate(op.inputs[first_argument(op.type) :]):
                if operand.op == handle:
                    yield Value(op.name, num_results + number)


def variables_behind(view: GraphView, values: Iterable[Value]) -> set[str]:
    """Keys of the variables that some values are made of."""
    ops = {value.op for value in behind(view, values)}
    return {view.variables[name].key for name in ops & view.variables.keys()}


def own_in(view: GraphView, value: Value) -> frozenset[Source]:
    """What an op itself brings into a value that may be its replica's own."""
    op = view.producer(value)
    if is_call(op.type):
        return _of_call(view, op)[value.index].own
    if op.type == "Const":
        content = op.attribute("value").SerializeToString(deterministic=True)
        return frozenset({content})
    # One op may hand each replica a batch, as the elements of a distributed dataset are one tuple.
    return frozenset({(str(value),)}) if _is_own(view, op) else frozenset()


def joins_replicas(op: Op) -> bool:
    """Whether an op makes one value of what all replicas have: a sum, or all of it side by side."""
    return op.type.startswith("Collective") or op.type in REDUCTIONS or op.type == "NcclAllReduce"


def is_input(view: GraphView, source: Source) -> bool:
    """Whether something is what the graph is handed."""
    if isinstance(source, bytes):
        return False
    op = view.ops[parse_value(source[0]).op]
    return op.type in _INPUTS and op.name not in view.variables


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
    if op.type in OWN or op.type.startswith(_ELEMENTS):
        return True
    return any(word in op.type for word in _DRAWS) and view.is_stateful(op.type)


def _is_everybodys(view: GraphView, op: Op) -> bool:
    """Whether what enters an op is not followed: it is summed there, or nothing is claimed."""
    known = op.name in view.variables or op.type in _SHAPES or op.type == REPLICATED_INPUT
    return known or joins_replicas(op)


# What each call makes its results of, and then what it writes to its arguments, by view and op.
_by_call: weakref.WeakKeyDictionary[GraphView, dict[str, Sequence[Origins]]] = (
    weakref.WeakKeyDictionary()
)

# The same of each function, by the view that knows it.
_by_function: weakref.WeakKeyDictionary[GraphView, dict[str, Sequence[Origins]]] = (
    weakref.WeakKeyDictionary()
)


def _of_call(view: GraphView, op: Op) -> Sequence[Origins]:
    """What a call makes its results of, and then what it writes to its arguments."""
    known = _by_call.setdefault(view, {})
    if op.name not in known:
        called = [[_in_call(view, op, name) for name in names] for _, names in callees(op.node)]
        if op.type in LOOPS:
            (condition,), (body,) = called
            known[op.name] = [_after_loop(index, condition[0], body) for index in range(len(body))]
        else:
            alternatives = itertools.chain.from_iterable(called)
            known[op.name] = [_together(of_all) for of_all in zip(*alternatives, strict=True)]
    return known[op.name]


def _after_loop(index: int, condition: Origins, body: Sequence[Origins]) -> Origins:
    """What a loop makes one of its results of in the end, or what it writes to an argument.

    How often its body runs is part of that, where the body does more than to hand the value on.

    Args:
        index: Which one.
        condition: What it is made of whether the body runs again.
        body: What the body makes its results of, each the argument of that number the next time,
            and then what it writes.
    """
    if body[index] in (_NOTHING, Origins(frozenset({index}))):
        return body[index]
    asked = _together([body[index], condition])
    carried = {*reachable(asked.arguments, lambda number: body[number].arguments)}
    found = _together([asked, *(body[number] for number in carried)])
    return dataclasses.replace(found, arguments=frozenset(carried))


def _together(of_several: Iterable[Origins]) -> Origins:
    found = _NOTHING
    for one in of_several:
        found |= one
    return found


def _in_call(view: GraphView, op: Op, name: str) -> list[Origins]:
    """The part of a function in what a call makes of its arguments."""

    def seen_from_here(source: Source) -> Source:
        return source if isinstance(source, bytes) else (op.name, name, *source)

    return [
        dataclasses.replace(one, own=frozenset(map(seen_from_here, one.own)))
        for one in _of_function(view, op, name)
    ]


def _of_function(view: GraphView, op: Op, name: str) -> Sequence[Origins]:
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


def _of_values(body: GraphView, values: Iterable[Value]) -> Origins:
    """What a function makes some values of."""
    arguments, own = set[int](), set[Source]()
    for value in behind(body, values):
        op = body.producer(value)
        if op.type == ARGUMENT:
            # They come first, in the order of the signature.
            arguments.add(op.position)
        else:
            own |= own_in(body, value)
    return Origins(frozenset(arguments), frozenset(own))
