"""Which traced functions captured which variables: a ledger kept from import on.

A function that was traced while a slot lived whole reads the slot's own storage, which sharding
would free. The ledger shows it, so such a slot stays whole. Functions that no longer exist do not
count.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from tf_wu_shard.liveness import living

K = TypeVar("K", bound=Hashable)

_captured: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()
_components: weakref.WeakKeyDictionary[Any, Mapping[int, frozenset[int]]] = (
    weakref.WeakKeyDictionary()
)


def record(graph: Any, handles: Iterable[Any]) -> None:
    """Notes which handles a finished FuncGraph captured."""
    held = frozenset(id(handle) for handle in handles)
    if held:
        _captured[graph] = held


def note_components(graph: Any, components: Mapping[int, frozenset[int]]) -> None:
    """Notes whose components of variables a function accessed that accesses their shards now.

    The shards do not show it: each replica that reads one component takes all of them.

    Args:
        graph: The FuncGraph; it keeps the shards alive.
        components: By the id of the handle of a variable's first shard, the replicas' numbers.
    """
    if components:
        _components[graph] = components


def components_of(graphs: Iterable[Any], shard: int) -> frozenset[int]:
    """Whose components of a variable functions accessed before they were redirected to its shards.

    Args:
        graphs: The FuncGraphs.
        shard: The id of the handle of the variable's first shard.

    Returns:
        The replicas' numbers; none where nothing was noted.
    """
    found = (_components.get(graph, {}).get(shard, frozenset()) for graph in graphs)
    return frozenset().union(*found)


def captured_by(
    asked: Mapping[K, Iterable[Any]],
    leave_out: Callable[[Any], bool] = lambda graph: False,
    running: Any = None,
) -> dict[K, str]:
    """Names of living functions that captured handles.

    Args:
        asked: Handles, several to a key.
        leave_out: Says of a FuncGraph whether it does not count.
        running: The Python function that was just traced; what it leads to lives.

    Returns:
        For each key of which a living function captured any handle, the name of one.
    """
    wanted = {key: {id(handle) for handle in handles} for key, handles in asked.items()}
    captors = _captors(wanted, leave_out)
    found: dict[K, str] = {}
    # Dropped functions are often kept for a while by reference cycles alone.
    for reference in living(captors, running):
        found = captors[reference] | found
    return found


def _captors(
    wanted: Mapping[K, set[int]], leave_out: Callable[[Any], bool]
) -> dict[weakref.ref[Any], dict[K, str]]:
    """By function, the keys of which it captured a handle, each with the function's name."""
    found = {}
    for graph, held in list(_captured.items()):
        own = [key for key, handles in wanted.items() if not held.isdisjoint(handles)]
        # What a function is may take long to see, so it is asked once for all keys.
        if own and not leave_out(graph):
            found[weakref.ref(graph)] = dict.fromkeys(own, str(graph.name))
    return found
