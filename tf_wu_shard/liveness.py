"""Which objects can still be reached, where reference cycles may keep what nothing else holds.

A full garbage collection knows, but passes over every object of the process. Mostly the objects
that those in question lead to are enough, a few thousand.
"""

from __future__ import annotations

import gc
import itertools
import sys
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from tf_wu_shard.reachable import reachable

# Stands among the holders of an object for all that was not looked at.
_OUTSIDE = 0

# Beyond so many objects a collection is faster.
_MOST_OBJECTS = 100_000


def living(suspects: Iterable[weakref.ref[Any]], alive: Any = None) -> list[weakref.ref[Any]]:
    """The objects that something besides reference cycles keeps alive.

    Collects all garbage only where neither the count of references nor what `alive` leads to
    decides. An object that is left out may still be there, waiting for a collection; only weak
    references and finalizers get at it. A caller that holds a suspect itself keeps it alive.

    Args:
        suspects: Weak references to the objects in question.
        alive: An object that is in use for certain, as is what it leads to.

    Returns:
        The references, in their order, to those that live.
    """
    suspects = [reference for reference in suspects if reference() is not None]
    holders = _holders(suspects)
    if holders is not None:
        leading = [
            set(reachable([id(reference())], lambda key: holders.get(key, ())))
            for reference in suspects
        ]
        held = [keys for keys in leading if _OUTSIDE in keys]
        if _leads_to_each(alive, held):
            pairs = zip(suspects, leading, strict=True)
            return [reference for reference, keys in pairs if _OUTSIDE in keys]
    # What holds one from outside may itself be garbage.
    gc.collect()
    return [reference for reference in suspects if reference() is not None]


def _holders(references: Sequence[weakref.ref[Any]]) -> dict[int, list[int]] | None:
    """What holds objects and all that they lead to, by the `id`s of both; None for too many.

    An object with another number of references than those from these objects is held from outside.
    This is how Python's collector tells garbage, there among the objects of a generation: see
    "Garbage collector design" in CPython's internal documentation.
    """
    # The first, which nothing else holds, shows how many references counting itself adds.
    objects: list[Any] = [[], *_each_once(reference() for reference in references)]
    seen = set(map(id, objects))
    for one in objects:
        if len(objects) > _MOST_OBJECTS:
            return None
        for referent in _referents(one):
            if id(referent) not in seen:
                seen.add(id(referent))
                objects.append(referent)
    one = referent = None
    # In one call, which gives way to no other thread: one that moved a reference between a count
    # and the other would make what it holds look like garbage.
    found: list[Any] = [
        *itertools.chain(map(sys.getrefcount, objects), map(gc.get_referents, objects))
    ]
    counts, edges = found[: len(objects)], found[len(objects) :]
    holders: dict[int, list[int]] = {key: [] for key in seen}
    for one, referents in zip(objects, edges, strict=True):
        for referent in referents:
            if id(referent) in seen:
                holders[id(referent)].append(id(one))
    for one, count in zip(objects, counts, strict=True):
        if count - counts[0] != len(holders[id(one)]):
            holders[id(one)].append(_OUTSIDE)
    return holders


def _each_once(objects: Iterable[Any]) -> list[Any]:
    return list({id(one): one for one in objects}.values())


def _leads_to_each(root: Any, wanted: Iterable[set[int]]) -> bool:
    """Whether an object leads to one of each of these sets of `id`s; False for too long a way."""
    missing = list(wanted)
    objects, seen = [root], {id(root)}
    for one in objects:
        missing = [keys for keys in missing if id(one) not in keys]
        if not missing or len(objects) > _MOST_OBJECTS:
            break
        for referent in _referents(one):
            if id(referent) not in seen:
                seen.add(id(referent))
                objects.append(referent)
    return not missing


def _referents(one: Any) -> list[Any]:
    """What an object refers to, but for types, modules and their globals.

    What those hold counts as held from outside.
    """
    return [
        referent
        for referent in gc.get_referents(one)
        if gc.is_tracked(referent)
        # An object may lie about its class, or raise an error, if it is asked itself.
        and not issubclass(type(referent), type | types.ModuleType)
        and not (type(referent) is dict and "__builtins__" in referent)
    ]
