"""Variables that a function writes with what each replica has of its own.

Under a strategy, a mirrored variable holds the same on all replicas because all of them write the
same. A function may break that: a local step moves each replica's copy by its own gradient. Found
is what is seen to be a replica's own: an argument of each, a variable that each has for itself, a
random number, an element of a dataset, a constant such as the replica's number. What was summed
over the replicas is everybody's. Where replicas are in other processes, a constant and a scalar
argument are taken to be the same in all of them, and an argument that has axes may be a batch.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Set

from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.step import origins
from tf_wu_shard.step.origins import Source


def written_with_own_values(
    view: GraphView, keys: Set[str], *, own_inputs: bool = True
) -> dict[str, str]:
    """Finds the variables whose components do not stay alike.

    Args:
        view: The graph.
        keys: Mirrored variables, by key.
        own_inputs: Whether an input that not all copies are written with is a replica's own; False
            where that is for others to say, as for what a branch takes.

    Returns:
        For each that is written so, by key, the name of an op that yields what is a replica's own.
    """
    # By replica and variable, what it is written with.
    written: dict[int, dict[str, set[Value]]] = {}
    for handle, ref in view.variables.items():
        if ref.mirrored:
            own = written.setdefault(ref.replica, {}).setdefault(ref.key, set())
            own.update(origins.written_with(view, handle))
    if not written:
        return {}
    # By replica, what may be its own, and the values that an op brings it into.
    brought: list[dict[Source, set[Value]]] = [
        _brought_in(view, itertools.chain.from_iterable(of_replica.values()))
        for of_replica in written.values()
    ]
    # What the writes of all copies are made of is no copy's own, if they are all here.
    common = set.intersection(*({*of_copy} for of_copy in brought))
    elsewhere = any(ref.replicas_elsewhere for ref in view.variables.values())
    if len(brought) == 1 or elsewhere:
        common = {source for source in common if _is_common(view, source)}
    apart: dict[str, set[Value]] = {}
    for of_copy in brought:
        for source in of_copy.keys() - common:
            if own_inputs or not _is_input(view, source):
                for value in of_copy[source]:
                    apart.setdefault(value.op, set()).add(value)
    found: dict[str, str] = {}
    for op in sorted(apart, key=lambda name: view.ops[name].position):
        if len(found) == len(keys):
            break
        reached = {*reachable(apart[op], functools.partial(origins.after, view))}
        for of_replica in written.values():
            for key in keys & of_replica.keys() - found.keys():
                if not reached.isdisjoint(of_replica[key]):
                    found[key] = op
    return found


def _brought_in(view: GraphView, written: Iterable[Value]) -> dict[Source, set[Value]]:
    """What may be a replica's own of that which some values are made of.

    Returns:
        For each, the values that an op brings it into.
    """
    found: dict[Source, set[Value]] = {}
    for value in reachable(written, functools.partial(origins.before, view)):
        for source in origins.own_in(view, value):
            found.setdefault(source, set()).add(value)
    return found


def _is_common(view: GraphView, source: Source) -> bool:
    """Whether what all copies here take is the same for those that are not here.

    Own inputs are those of a process among others.
    """
    if isinstance(source, bytes):
        return True
    value = parse_value(source[0])
    own = value.op in view.own_inputs and view.shape(value) != ()
    return _is_input(view, source) and not own


def _is_input(view: GraphView, source: Source) -> bool:
    """Whether something is what the graph is handed."""
    if isinstance(source, bytes):
        return False
    return view.ops[parse_value(source[0]).op].type in origins.INPUTS
