"""Which objects live, where reference cycles may keep what nothing else holds.

A full garbage collection knows, but passes over every object of the process. Mostly the objects
that those in question lead to are enough, a few thousand.
"""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

# Stands among the holders of an object for all that it does not lead to.
_OUTSIDE = 0


def living(suspects: Iterable[weakref.ref[Any]], alive: Any = None) -> list[weakref.ref[Any]]:
    """The objects that something besides reference cycles keeps alive.

    Collects all garbage only where neither the count of references nor what `alive` leads to
    decides. A caller that holds a suspect itself keeps it alive.

    Args:
        suspects: Weak references to the objects in question.
        alive: An object that is in use for certain, as is what it leads to.

    Returns:
        The references, in their order, to those that live.
    """
    suspects = [reference for reference in suspects if reference() is not None]
    holders = _holders(suspects)
    found = {reference: _leading_to(id(reference()), holders) for reference in suspects}
    held = {reference: leading for reference, leading in found.items() if _OUTSIDE in leading}
    if not all(_leads_to_any(alive, leading) for leading in held.values()):
        # What holds one from outside may itself be garbage.
        gc.collect()
    return [reference for reference in held if reference() is not None]


def _holders(references: Iterable[weakref.ref[Any]]) -> dict[int, list[int]]:
    """What holds objects and all that they lead to, by the `id`s of both.

    An object with more references than those from these objects is held from outside. This is how
    Python's collector tells garbage, there among the objects of a generation: see "Garbage
    collector design" in CPython's internal documentation.
    """
    # The first, which nothing else holds, shows how many references counting itself adds.
    objects: list[Any] = [[]]
    holders: defaultdict[int, list[int]] = defaultdict(list)
    objects += {id(one): one for reference in references for one in [reference()]}.values()
    seen = set(map(id, objects))
    for one in objects:
        for referent in _referents(one):
            holders[id(referent)].append(id(one))
            if id(referent) not in seen:
                seen.add(id(referent))
                objects.append(referent)
    one = referent = None
    counts = [sys.getrefcount(one) for one in objects]
    for one, count in zip(objects, counts, strict=True):
        if count - counts[0] > len(holders[id(one)]):
            holders[id(one)].append(_OUTSIDE)
    return holders


def _leading_to(key: int, holders: dict[int, list[int]]) -> set[int]:
    """The `id`s of an object, of what holds it, of what holds those and so on."""
    found, left = {key}, [key]
    while left:
        new = set(holders.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def _leads_to_any(root: Any, keys: set[int]) -> bool:
    """Whether an object leads to one of those with these `id`s, the nearest first."""
    seen, left = {id(root)}, deque([root])
    while left:
        one = left.popleft()
        if id(one) in keys:
            return True
        for referent in _referents(one):
            if id(referent) not in seen:
                seen.add(id(referent))
                left.append(referent)
    return False


def _referents(one: Any) -> Iterable[Any]:
    """What an object refers to, but for what lives as long as the process or holds nothing."""
    return (
        referent
        for referent in gc.get_referents(one)
        if gc.is_tracked(referent)
        and not isinstance(referent, type | types.ModuleType)
        and not (type(referent) is dict and "__builtins__" in referent)
    )
