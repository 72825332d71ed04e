"""Finds accesses of one variable that nothing orders, in the NodeDefs of a graph.

The accesses of a variable that is updated had an order before (`variable_values.check_order`); what
stands in their place must have it too. Mostly an edge leads from one to the next, so that nothing
else has to be walked, and no `GraphView` of the new graph is needed: putting its ops in order alone
takes more than twice as long as this.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tf_wu_shard.graph.nodes import sources_of
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ, WHOLE_READS

_READS = frozenset({READ, *WHOLE_READS})


def races(nodes: Sequence[Any], handles: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Finds what may run in either order, or at once, and gives another result each time.

    Args:
        nodes: All NodeDefs of a graph, or their `Edges`.
        handles: Names of the ops that yield the handles to look at.

    Yields:
        A handle, and the names of two ops that take it, one of which does more than read.
    """
    looked_at = frozenset(handles)
    taking: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for node in nodes:
        if not looked_at.isdisjoint(node.input):
            for handle in looked_at.intersection(node.input):
                taking[handle][node.name] = node
    sources: dict[str, list[str]] = {}
    for handle, takers in taking.items():
        if all(node.op in _READS for node in takers.values()):
            continue
        direct = {n: takers.keys() & sources_of(node) for n, node in takers.items()}
        if not any(_unordered(takers, direct)):
            continue
        sources = sources or {node.name: sources_of(node) for node in nodes}
        before = {name: takers.keys() & _behind(name, sources) for name in takers}
        yield from ((handle, *pair) for pair in _unordered(takers, before))


def _unordered(
    takers: Mapping[str, Any], before: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, str]]:
    """The pairs that are not ordered, given what comes before each, be it by way of others."""
    behind = {name: _behind(name, before) for name in takers}
    for one, other in itertools.combinations(takers, 2):
        if {takers[one].op, takers[other].op} <= _READS:
            continue
        if one not in behind[other] and other not in behind[one]:
            yield one, other


def _behind(name: str, sources: Mapping[str, Iterable[str]]) -> set[str]:
    """All that an op comes after."""
    return {*reachable(sources[name], lambda one: sources[one])}
