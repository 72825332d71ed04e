"""Which traced functions captured which variables: a ledger kept from import on.

A function that was traced while a slot lived whole reads the slot's own storage, which sharding
would free. The ledger tells, so that such a slot stays whole. Functions that no longer exist do not
count.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from typing import Any

_captured: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()


def record(graph: Any, handles: Iterable[Any]) -> None:
    """Notes which handles a finished FuncGraph captured."""
    held = frozenset(id(handle) for handle in handles)
    if held:
        _captured[graph] = held


def captured_by(handles: Iterable[Any]) -> str | None:
    """Name of a living function that captured one of these handles, or None."""
    wanted = {id(handle) for handle in handles}
    if _find(wanted) is None:
        return None
    # Dropped functions are often kept for a while by reference cycles alone.
    gc.collect()
    return _find(wanted)


def _find(wanted: set[int]) -> str | None:
    for graph, held in list(_captured.items()):
        if wanted & held:
            return str(graph.name)
    return None
