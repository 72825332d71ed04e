"""Variables that a function writes with what each replica has of its own.

Under a strategy, a mirrored variable holds the same on all replicas because all of them write the
same. A function may break that: a local step moves each replica's copy by its own gradient. Found
is what is seen to be a replica's own: an argument of each, a variable that each has for itself, a
random number, an element of a dataset, what Python code returns, a constant such as the replica's
number. What was summed over the replicas is everybody's. Where replicas are in other processes, a
constant and a scalar argument are taken to be the same in all of them, and an argument that has
axes may be a batch.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.step import origins
from tf_wu_shard.step.origins import Source


def written_with_own_values(
    view: GraphView,
    keys: Set[str],
    is_own_input: Callable[[str], bool] = lambda name: True,
    alike: Set[str] = frozenset(),
) -> dict[str, str]:
    """Finds the variables whose components do not stay alike.

    Args:
        view: The graph.
        keys: Mirrored variables, by key.
        is_own_input: Whether an input, by name, that not all copies are written with is a replica's
            own, see `handed_inputs`.
        alike: Variables, by key, that are proved to be written alike: none of these, nor what is
            read of them.

    Returns:
        For each that is written so, by key, the name of an op that yields what is a replica's own.
    """
    # By replica and variable, what it is written with.
    written: dict[int, dict[str, set[Value]]] = {}
    for handle, ref in view.variables.items():
        if ref.mirrored and ref.key not in alike:
            own = written.setdefault(ref.replica, {}).setdefault(ref.key, set())
            own.update(origins.written_with(view, handle))
    if not written:
        return {}
    # By replica, what may be its own, and the values that an op brings it into.
    brought: list[dict[Source, set[Value]]] = [
        _brought_in(view, itertools.chain.from_iterable(of_replica.values()))
        for of_replica in written.values()
    ]
    found = _written_with_own_constants(view, written, brought, keys)
    # What the writes of all copies are made of is no copy's own, if they are all here.
    common = set.intersection(*({*of_copy} for of_copy in brought))
    elsewhere = any(ref.replicas_elsewhere for ref in view.variables.values())
    if len(brought) == 1 or elsewhere:
        common = {source for source in common if _is_handed_to_all(view, source)}
    apart: dict[str, set[Value]] = {}
    for of_copy in brought:
        for source in of_copy.keys() - common:
            # Constants were looked at already.
            is_known = isinstance(source, bytes) or (
                origins.is_input(view, source) and not is_own_input(source[0])
            )
            for value in () if is_known else of_copy[source]:
                apart.setdefault(value.op, set()).add(value)
    for op in sorted(apart, key=lambda name: view.ops[name].position):
        if len(found) == len(keys):
            break
        reached = {*reachable(apart[op], functools.partial(origins.after, view))}
        for of_replica in written.values():
            for key in keys & of_replica.keys() - found.keys():
                if not reached.isdisjoint(of_replica[key]):
                    found[key] = op
    return found


def _written_with_own_constants(
    view: GraphView,
    written: Mapping[int, Mapping[str, Iterable[Value]]],
    brought: Sequence[Mapping[Source, Set[Value]]],
    keys: Set[str],
) -> dict[str, str]:
    """Finds the variables whose copies are made of other constants, such as a replica's number.

    How many of one content there are counts, as the number may be an axis elsewhere.

    Args:
        view: The graph.
        written: By replica and variable, what it is written with.
        brought: By replica, what may be its own.
        keys: The variables to ask about.

    Returns:
        As `written_with_own_values`.
    """
    if not _differ([_constants(of_copy) for of_copy in brought]):
        return {}
    found: dict[str, str] = {}
    for key in keys:
        of_key = [_brought_in(view, of_replica.get(key, ())) for of_replica in written.values()]
        first, *others = map(_constants, of_key)
        own = {source for other in others if _differ([first, other]) for source in first - other}
        ops = {value.op for source in own for value in of_key[0][source]}
        if ops:
            found[key] = min(ops, key=lambda name: view.ops[name].position)
    return found


def _differ(counts: Sequence[collections.Counter[Source]]) -> bool:
    """Whether one copy has a constant more than the first, and the first one more than that.

    A variable that is made in the step has its value on the first replica, and the others copy it.
    """
    first, *others = counts
    return any(first - other and other - first for other in others)


def _constants(brought: Mapping[Source, Set[Value]]) -> collections.Counter[Source]:
    """How often there is a constant of each content."""
    return collections.Counter(
        {source: len(values) for source, values in brought.items() if isinstance(source, bytes)}
    )


def _brought_in(view: GraphView, written: Iterable[Value]) -> dict[Source, set[Value]]:
    """What may be a replica's own of that which some values are made of.

    Returns:
        For each, the values that an op brings it into.
    """
    found: dict[Source, set[Value]] = {}
    for value in origins.behind(view, written):
        for source in origins.own_in(view, value):
            found.setdefault(source, set()).add(value)
    return found


def _is_handed_to_all(view: GraphView, source: Source) -> bool:
    """Whether what all copies here are handed is the same for those that are not here.

    Own inputs are those of a process among others.
    """
    if isinstance(source, bytes) or not origins.is_input(view, source):
        return False
    value = parse_value(source[0])
    return value.op not in view.own_inputs or view.shape(value) == ()
