"""Variables that a function writes with what each replica has of its own.

Under a strategy, a mirrored variable holds the same on all replicas because all of them write the
same. A function may break that: a local step moves each replica's copy by its own gradient. Found
is what is seen to be a replica's own: an argument of each, a variable that each has for itself, a
random number, an element of a dataset, a constant such as the replica's number. What was summed
over the replicas is everybody's. Where replicas are in other processes, a constant and a scalar
argument are taken to be the same in all of them, and an argument that has axes may be a batch.
Nothing is claimed of what a called function does.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence, Set

from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import OWN, REDUCTIONS, REPLICATED_INPUT
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import num_written
from tf_wu_shard.step.accesses import accesses
from tf_wu_shard.step.variable_values import values_of

_ARGUMENTS = frozenset({"Placeholder", "Arg", "_Arg"})

# Of what they tell, nothing is claimed: gradients have shapes that all replicas share.
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})

# What hands out elements of a dataset, to each replica its own.
_ELEMENTS = ("Iterator", "MultiDeviceIterator")

# Stateful ops with this in their names draw numbers.
_DRAWS = ("Random", "Rng", "Multinomial", "StatefulUniform", "StatefulStandardNormal")


def written_with_own_values(view: GraphView, keys: Set[str]) -> dict[str, str]:
    """Finds the variables whose components do not stay alike.

    Args:
        view: The graph.
        keys: Mirrored variables, by key.

    Returns:
        For each that is written so, by key, the name of an op that yields what is a replica's own.
    """
    # By replica and variable, what it is written with.
    written: dict[int, dict[str, set[Value]]] = {}
    for handle, ref in view.variables.items():
        if ref.mirrored:
            own = written.setdefault(ref.replica, {}).setdefault(ref.key, set())
            own.update(_written(view, handle))
    if not written:
        return {}
    behind = [
        _behind(view, itertools.chain.from_iterable(of_replica.values()))
        for of_replica in written.values()
    ]
    constants = _differing_constants(view, behind)
    leaves = [
        {name for name in names if name in constants or _is_own(view, view.ops[name])}
        for names in behind
    ]
    if not any(leaves):
        return {}
    # What the writes of all copies are made of is no copy's own, if they are all here.
    common = leaves[0].intersection(*leaves)
    elsewhere = any(ref.replicas_elsewhere for ref in view.variables.values())
    if len(leaves) == 1 or elsewhere:
        common = {leaf for leaf in common if _is_common(view, view.ops[leaf])}
    apart = leaves[0].union(*leaves) - common
    found: dict[str, str] = {}
    for leaf in sorted(apart, key=lambda name: view.ops[name].position):
        if len(found) == len(keys):
            break
        reached = {*reachable(view.results(leaf), functools.partial(_following, view))}
        for of_replica in written.values():
            for key in keys & of_replica.keys() - found.keys():
                if not reached.isdisjoint(of_replica[key]):
                    found[key] = leaf
    return found


def _written(view: GraphView, handle: str) -> Iterator[Value]:
    """What a variable is written with."""
    for write in values_of(view, handle).own_writes:
        yield from write.inputs[num_written(write.type) :]


def _behind(view: GraphView, values: Iterable[Value]) -> set[str]:
    """The ops that some values are made of, as far as these may be a replica's own."""
    return {value.op for value in reachable(values, functools.partial(_before, view))}


def _differing_constants(view: GraphView, behind: Sequence[Set[str]]) -> set[str]:
    """Constants that not every copy has an equal one of.

    Args:
        view: The graph.
        behind: Per copy, the ops that what it writes is made of.
    """
    contents = [
        {
            name: view.ops[name].attribute("value").SerializeToString(deterministic=True)
            for name in names
            if view.ops[name].type == "Const"
        }
        for names in behind
    ]
    every = set.intersection(*({*own.values()} for own in contents))
    return {name for own in contents for name, content in own.items() if content not in every}


def _before(view: GraphView, value: Value) -> Sequence[Value]:
    """What a value is made of; nothing of what is everybody's."""
    op = view.producer(value)
    if _is_everybodys(view, op):
        return ()
    # Beside a sum it also hands through what a replica has of its own.
    return op.inputs[value.index : value.index + 1] if op.type == "IdentityN" else op.inputs


def _following(view: GraphView, value: Value) -> Iterator[Value]:
    """What is made of a value, but for what is everybody's; what is written is read again."""
    for op, slot in view.consumers(value):
        if op.type == "IdentityN":
            yield Value(op.name, slot)
        elif slot >= num_written(op.type) > 0:
            for handle in op.inputs[: num_written(op.type)]:
                for access in accesses(view, handle.op):
                    if access.access.is_read and access.op.position > op.position:
                        yield from view.results(access.op.name)
        elif not _is_everybodys(view, op):
            yield from view.results(op.name)


def _is_everybodys(view: GraphView, op: Op) -> bool:
    """Whether what enters an op is not followed: it is summed there, or nothing is claimed."""
    summed = op.type.startswith("Collective") or op.type in REDUCTIONS or op.type == "NcclAllReduce"
    known = op.name in view.variables or op.type in _SHAPES or op.type == REPLICATED_INPUT
    return summed or known or is_call(op.type)


def _is_common(view: GraphView, op: Op) -> bool:
    """Whether what all copies here take is the same for those that are not here.

    Own inputs are those of a process among others.
    """
    if op.type not in _ARGUMENTS:
        return False
    return op.name not in view.own_inputs or view.shape(Value(op.name)) == ()


def _is_own(view: GraphView, op: Op) -> bool:
    """Whether what an op yields may be its replica's own."""
    ref = view.variables.get(op.name)
    if ref is not None:
        # Of a variable that is no strategy's there is one, in this process at least.
        return ref.num_replicas > 1 and not ref.mirrored
    if op.type in _ARGUMENTS:
        return True
    if op.type == REPLICATED_INPUT:
        return len(set(op.inputs)) > 1
    if op.type in OWN or op.type.startswith(_ELEMENTS):
        return True
    return any(word in op.type for word in _DRAWS) and view.is_stateful(op.type)
