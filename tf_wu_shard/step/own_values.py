"""Variables that a function writes with what each replica has of its own.

Under a strategy, a mirrored variable holds the same on all replicas because all of them write the
same. A function may break that: a local step moves each replica's copy by its own gradient, or by
its part of one batch. So each copy is to be written with equal values, as often and in one order.
Where some are in other processes, these are to have them as well: a constant and a scalar argument
are taken to be the same in all of them, and an argument that has axes may be a batch.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step import origins
from tf_wu_shard.step.copy_values import CopyValues, Handed, each_its_own


class _Write(NamedTuple):
    """One value that an op writes to one component of a variable."""

    handle: str
    op: Op
    value: Value


# What an op does to a variable, and the numbers of the values that it takes.
_Done: TypeAlias = tuple[Hashable, ...]

# By replica and variable, how the graph writes it.
_Written: TypeAlias = Mapping[int, Mapping[str, Sequence[_Write]]]


def written_with_own_values(
    view: GraphView,
    keys: Set[str],
    handed: Handed = each_its_own,
    alike: Set[str] = frozenset(),
    *,
    called_once: bool = False,
) -> dict[str, str]:
    """Finds the variables whose components do not stay alike.

    Args:
        view: The graph.
        keys: Mirrored variables, by key.
        handed: What the graph is handed that may be a replica's own, see `handed_inputs`.
        alike: Variables, by key, that are proved to be written alike: none of these, nor what is
            read of them.
        called_once: Whether it is run once for all replicas: of a variable it has all copies then,
            and one that it does not write stays as it was.

    Returns:
        For each that is written so, by key, the name of an op that yields what is a replica's own.
    """
    written: dict[int, dict[str, list[_Write]]] = {}
    for handle, ref in view.variables.items():
        if ref.mirrored and ref.key not in alike:
            own = written.setdefault(ref.replica, {}).setdefault(ref.key, [])
            own += (_Write(handle, op, value) for op, value in origins.writes(view, handle))
            for replica in range(ref.num_replicas) if called_once else ():
                written.setdefault(replica, {}).setdefault(ref.key, [])
    if not any(itertools.chain.from_iterable(of.values() for of in written.values())):
        return {}
    apart = _written_apart(view, written, handed)
    return {key: where for key, where in apart.items() if key in keys}


def _written_apart(view: GraphView, written: _Written, handed: Handed) -> dict[str, str]:
    """Finds the variables that not all copies write with equal values, see `CopyValues`.

    Args:
        view: The graph.
        written: How it writes each variable.
        handed: What it is handed.

    Returns:
        As `written_with_own_values`.
    """
    elsewhere = any(ref.replicas_elsewhere for ref in view.variables.values())
    made_of: dict[Value, int] = {}
    for number, of_copy in enumerate(written.values()):
        for write in itertools.chain.from_iterable(of_copy.values()):
            made_of[write.value] = made_of.get(write.value, 0) | 1 << number
    found: dict[str, str] = {}
    # What is read of a variable after it was written so is a replica's own as well.
    own_reads: dict[Value, str] = {}
    while True:
        values = CopyValues(
            view,
            made_of,
            len(written),
            is_whole=len(written) > 1 and not elsewhere,
            handed=handed,
            own_reads=own_reads.keys(),
        )
        begun = len(own_reads)
        for key in dict.fromkeys(key for of_copy in written.values() for key in of_copy):
            of_each = [of_copy[key] for of_copy in written.values() if key in of_copy]
            for write, own in _apart(values, of_each):
                where = own_reads.get(own, own.op)
                found.setdefault(key, where)
                for read in origins.read_after(view, write.handle, write.op):
                    for value in view.results(read.name):
                        own_reads.setdefault(value, where)
        if len(own_reads) == begun:
            return found


def _apart(
    values: CopyValues, of_each: Sequence[Sequence[_Write]]
) -> Iterator[tuple[_Write, Value]]:
    """Finds the writes of a variable that not all copies do, or not as often.

    Args:
        values: What is written.
        of_each: The writes of each copy.

    Yields:
        Each such write, with what parts its value from those of the others.
    """
    done: list[dict[str, _Done]] = []
    for of_copy in of_each:
        numbers: dict[str, list[int]] = {}
        for write in of_copy:
            numbers.setdefault(write.op.name, []).append(values.number(write.value))
        does = {write.op.name: values.does(write.op) for write in of_copy}
        done.append({name: (does[name], *numbers[name]) for name in numbers})
    counts = [collections.Counter(of_copy.values()) for of_copy in done]
    # The same in another order comes to something else.
    is_ordered = len({tuple(of_copy.values()) for of_copy in done}) == 1
    as_often = all(count == counts[0] for count in counts)
    alone = [
        write
        for of_copy, ops in zip(of_each, done, strict=True)
        for write in of_copy
        if (not is_ordered and as_often)
        or len({of_other[ops[write.op.name]] for of_other in counts}) > 1
    ]
    # What is most a replica's own is the reason to tell.
    writes = sorted(
        itertools.chain.from_iterable(of_each),
        key=lambda write: values.origin(write.value),
        reverse=True,
    )
    for write in writes:
        foremost = values.foremost(write.value)
        if not values.is_alike_everywhere(write.value):
            yield write, foremost
        elif write in alone:
            others = [o for o in alone if o.handle != write.handle and o.op.type == write.op.type]
            yield write, values.parting(write.value, others[0].value) if others else foremost
