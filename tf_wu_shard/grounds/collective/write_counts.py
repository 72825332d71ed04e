"""Counts, in a worker's graph, when writes of shards begin and when they have ended.

Another worker may ask for a shard while a step runs. It gets what was there between two steps, or
learns that there is a step: where as many writes ended as began, none is under way. Writes begin
once the first exchange has brought something, also those that take nothing of it, so that a worker
that waits in a step for a reader has not begun.

Where a step updates several times, each time is counted by itself: an update is whole on all
workers when the next one's exchange begins, and stays readable if that one fails.

A function that sums nothing asks the other workers for a slot by Python code. If it writes the slot
as well, it asks before it begins to write, and after what it wrote before has ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tf_wu_shard.dtypes import INT64
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.ordering import ordered_ops

# What brings something from other workers: sums of gradients, or the entries of sparse ones.
_EXCHANGES = {
    *("CollectiveAllToAllV2", "CollectiveGatherV2"),
    *("CollectiveReduceScatterV2", "CollectiveReduceV2"),
}


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
    nodes: Sequence[Any],
    control_outputs: Sequence[str],
    writes: Mapping[str, Sequence[Counter]],
    lone_reads: Mapping[str, Counter] | None = None,
) -> Counted:
    """Lets a graph count.

    Args:
        nodes: The NodeDefs; those that write shards, or ask for some, are changed.
        control_outputs: Names of the ops that must run.
        writes: For each op that writes shards, by name, what counts that.
        lone_reads: For each op that asks the other workers for a slot, by name, what counts the
            slot's writes.

    Returns:
        The graph; the same one where it writes no shard.
    """
    if not writes:
        return Counted((*nodes,), tuple(control_outputs), {})
    lone = lone_reads or {}
    places, first, brought = _places(nodes, writes, lone)
    together: dict[tuple[int, int], list[Any]] = {}
    for node in nodes:
        for counter in {id(counter) for counter in writes.get(node.name, ())}:
            together.setdefault((counter, places[node.name].level), []).append(node)
    by_id = {id(counter): counter for counters in writes.values() for counter in counters}
    builder = GraphBuilder(node.name for node in nodes)
    bindings: dict[str, Any] = {}
    ends: list[tuple[int, int, str]] = []
    for number, ((counter, level), written) in enumerate(together.items()):
        at = builder.at(written[0].device, f"wu_shard/writes_{number}")
        begun, ended = (at.handle_input(name) for name in ("begun", "ended"))
        bindings |= {begun.op: by_id[counter].begun.handle, ended.op: by_id[counter].ended.handle}
        one = at.constant(1, INT64)
        earliest = min(places[node.name] for node in written)
        asked = [
            name for name, own in lone.items() if id(own) == counter and places[name].level == level
        ]
        # What waits for no exchange may wait for one that waits for no write.
        exchanged = first.get(earliest) or brought.get(level, ())
        waits = dict.fromkeys((*exchanged, *asked))
        begin = at.op("AssignAddVariableOp", [begun, one], "begin", controls=waits)
        after = [begin.op, *(node.name for node in written)]
        end = at.op("AssignAddVariableOp", [ended, one], "end", controls=after)
        for node in written:
            node.input.append(f"^{begin.op}")
        control_outputs = (*control_outputs, end.op)
        ends.append((counter, level, end.op))
    for node in nodes if lone else ():
        if node.name in lone:
            counter, level = id(lone[node.name]), places[node.name].level
            earlier = (name for own, lower, name in ends if own == counter and lower < level)
            node.input.extend(f"^{name}" for name in earlier)
    return Counted((*nodes, *builder.nodes), tuple(control_outputs), bindings)


class _Place(NamedTuple):
    """Where an op stands among exchanges and writes.

    Attributes:
        level: How often something was exchanged, after earlier writes, on the way to it.
        depth: How many exchanges of this level come one after the other on the way.
    """

    level: int = 0
    depth: int = 0


def _places(
    nodes: Iterable[Any], writes: Collection[str], lone_reads: Collection[str]
) -> tuple[dict[str, _Place], dict[_Place, tuple[str, ...]], dict[int, tuple[str, ...]]]:
    """The place of each op; the first exchange or lone read of each; and each level's exchange."""
    places: dict[str, _Place] = {}
    # The level that an exchange would have here.
    following: dict[str, int] = {}
    first: dict[_Place, tuple[str, ...]] = {}
    brought: dict[int, tuple[str, ...]] = {}
    for op in ordered_ops(nodes):
        # The deepest of the highest level.
        place = max((places[name] for name in op.sources), default=_Place())
        after = max((following[name] for name in op.sources), default=0)
        if op.type in _EXCHANGES or op.name in lone_reads:
            deeper = _Place(place.level, place.depth + 1)
            place = max(deeper, _Place(after, 1))
            first.setdefault(place, (op.name,))
        if op.type in _EXCHANGES:
            brought.setdefault(place.level, (op.name,))
        places[op.name] = place
        following[op.name] = max(after, place.level + 1) if op.name in writes else after
    return places, first, brought
