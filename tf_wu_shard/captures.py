"""Which traced functions captured which variables: a ledger kept from import on.

A function that was traced while a slot lived whole reads the slot's own storage, which sharding
would free. The ledger shows it, so such a slot stays whole. Functions that no longer exist do not
count.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)

_captured: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()


def record(graph: Any, handles: Iterable[Any]) -> None:
    """Notes which handles a finished FuncGraph captured."""
    held = frozenset(id(handle) for handle in handles)
    if held:
        _captured[graph] = held


def captured_by(
    asked: Mapping[K, Iterable[Any]], leave_out: Callable[[Any], bool] = lambda graph: False
) -> dict[K, str]:
    """Names of living functions that captured handles.

    To know for certain that one lives takes longer than all else of a small trace.

    Args:
        asked: Handles, several to a key.
        leave_out: Says of a FuncGraph whether it does not count.

    Returns:
        For each key of which a living function captured any handle, the name of one.
    """
    wanted = {key: {id(handle) for handle in handles} for key, handles in asked.items()}
    found = _find(wanted, leave_out)
    if found:
        # Dropped functions are often kept for a while by reference cycles alone.
        gc.collect()
        found = _find({key: wanted[key] for key in found}, leave_out)
    return found


def _find(wanted: Mapping[K, set[int]], leave_out: Callable[[Any], bool]) -> dict[K, str]:
    found: dict[K, str] = {}
    for graph, held in list(_captured.items()):
        own = [key for key, handles in wanted.items() if not held.isdisjoint(handles)]
        # What a function is may take long to see, so it is asked once for all keys.
        if not found.keys() >= set(own) and not leave_out(graph):
            found |= {key: str(graph.name) for key in own if key not in found}
    return found
