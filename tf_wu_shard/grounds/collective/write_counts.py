"""Counts, in a worker's graph, when writes of shards begin and when they have ended.

Another worker may ask for a shard while a step runs. It gets what was there between two steps, or
learns that there is a step: where as many writes ended as began, none is under way. Writes begin
once the first exchange has brought something, so that a worker that waits in a step for a reader
has not begun.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tf_wu_shard.dtypes import INT64
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.reachable import reachable

# What brings something from other workers: sums of gradients, or the entries of sparse ones.
_EXCHANGES = {"CollectiveAllToAllV2", "CollectiveReduceScatterV2", "CollectiveGatherV2"}


class Counter(Protocol):
    """Two variables of int64 of one worker, for some slots."""

    @property
    def begun(self) -> Any:
        """What has a `handle` of the one."""

    @property
    def ended(self) -> Any:
        """And of the other."""


@dataclasses.dataclass(frozen=True)
class Counted:
    """A graph that counts its writes of shards.

    Attributes:
        nodes: Its NodeDefs.
        control_outputs: Names of the ops that must run.
        bindings: For each input that was added, by its placeholder's name, the handle to bind.
    """

    nodes: tuple[Any, ...]
    control_outputs: tuple[str, ...]
    bindings: dict[str, Any]


def with_write_counts(
    nodes: Sequence[Any], control_outputs: Sequence[str], writes: Mapping[str, Sequence[Counter]]
) -> Counted:
    """Lets a graph count.

    Args:
        nodes: The NodeDefs; those that write shards are changed.
        control_outputs: Names of the ops that must run.
        writes: For each op that writes shards, by name, what counts that.

    Returns:
        The graph; the same one where it writes no shard.
    """
    by_counter: dict[int, list[Any]] = {}
    for node in nodes:
        for counter in {id(counter) for counter in writes.get(node.name, ())}:
            by_counter.setdefault(counter, []).append(node)
    by_id = {id(counter): counter for counters in writes.values() for counter in counters}
    first = _first_exchange(nodes, [*writes]) if writes else []
    builder = GraphBuilder(node.name for node in nodes)
    bindings: dict[str, Any] = {}
    for number, (counter, written) in enumerate(by_counter.items()):
        at = builder.at(written[0].device, f"wu_shard/writes_{number}")
        begun, ended = (at.handle_input(name) for name in ("begun", "ended"))
        bindings |= {begun.op: by_id[counter].begun.handle, ended.op: by_id[counter].ended.handle}
        one = at.constant(1, INT64)
        begin = at.op("AssignAddVariableOp", [begun, one], "begin", controls=first)
        after = [begin.op, *(node.name for node in written)]
        end = at.op("AssignAddVariableOp", [ended, one], "end", controls=after)
        for node in written:
            node.input.append(f"^{begin.op}")
        control_outputs = (*control_outputs, end.op)
    return Counted((*nodes, *builder.nodes), tuple(control_outputs), bindings)


def _first_exchange(nodes: Sequence[Any], writes: Sequence[str]) -> list[str]:
    """The first exchange that waits for no write, if there is one."""
    inputs = {node.name: [_source(text) for text in node.input] for node in nodes}
    for node in nodes:
        if node.op in _EXCHANGES:
            before = set(reachable([node.name], lambda name: inputs[name]))
            if before.isdisjoint(writes):
                return [node.name]
    return []


def _source(text: str) -> str:
    return text.lstrip("^").partition(":")[0]
