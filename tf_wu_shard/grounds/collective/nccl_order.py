"""Puts the collectives that NCCL carries out in one order, the same on each device and worker.

NCCL waits for ever where two devices begin their collectives in different orders. Within a process
TensorFlow sees to it by itself: it queues a collective on all devices at once, when all have come
to it (`CheckReady` and `RunCollective` in nccl_manager.cc). Between processes it does not; there it
relies on the control edges that tracing puts between the ops that take one ordering token
(`CollectiveReplicaLauncher` in cross_device_utils.py), and nothing puts them into a graph that was
rewritten.

So each device gets a chain of control edges through all that takes part: the new collectives, the
strategy's own that are left (those of a loss, of a metric), and calls and branches that may have
some inside. Of the orders that the graph allows it is the one by how much each waits for; neither
names decide nor the order in which threads traced.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.nodes import waiting
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.ordering import ordered_ops
from tf_wu_shard.grounds.collective import group
from tf_wu_shard.tensorflow_private.call_time_inputs import CALL_TIME

# The kinds of what takes part.
_STRATEGYS, _CALL, _CALL_ON_SEVERAL, _NEW = range(4)


@dataclasses.dataclass
class _Exchange:
    """What the devices of a process take part in together.

    Attributes:
        kind: What it is.
        number: Its number among those of its kind.
        ops: By device, the op that takes part.
        depth: How many ops at most come one after the other on the way to it.
        before: Places of the exchanges that it waits for, in the list of all.
    """

    kind: int
    number: int
    ops: dict[str, Op] = dataclasses.field(default_factory=dict)
    depth: int = 0
    before: set[int] = dataclasses.field(default_factory=set)


def in_one_order(nodes: Sequence[Any]) -> tuple[Any, ...]:
    """Adds the control edges.

    Args:
        nodes: The NodeDefs of a graph. They stay as they are.

    Returns:
        Those of the graph where of any two collectives of a device, if NCCL carries them out, one
        waits for the other; the same ones where it carries none out.

    Raises:
        WuShardError: If the graph wants different orders on different devices.
    """
    if not any(map(_is_by_nccl, nodes)):
        return tuple(nodes)
    ops = {op.name: op for op in ordered_ops(nodes)}
    exchanges = _exchanges([ops[node.name] for node in nodes])
    _find_waits(ops.values(), exchanges)
    waits: dict[str, list[str]] = {}
    last: dict[str, str] = {}
    for exchange in _in_order(exchanges):
        for device, op in exchange.ops.items():
            if device in last:
                waits.setdefault(op.name, []).append(last[device])
            last[device] = op.name
    return tuple(waiting(node, waits.get(node.name, ())) for node in nodes)


def _is_by_nccl(node: Any) -> bool:
    attributes = node.attr
    return "communication_hint" in attributes and group.runs_by_nccl(
        attributes["communication_hint"].s, node.device
    )


def _exchanges(ops: Sequence[Op]) -> list[_Exchange]:
    """Everything in which NCCL may have to do something.

    TensorFlow takes the n-th collective that was traced on one device for the n-th of each other;
    so it is with the calls that take a device's token.

    Args:
        ops: The graph's, as they were traced.
    """
    by_nccl = [op for op in ops if _is_by_nccl(op.node)]
    device_of = {name: op.device for op in by_nccl for name in _tokens(op)}
    new = _numbers_of_new(ops)
    found: dict[tuple[int, int, tuple[str, ...]], _Exchange] = {}
    counts: dict[tuple[int, tuple[str, ...]], int] = {}

    def add(op: Op, kind: int, devices: tuple[str, ...], number: int | None = None) -> None:
        if number is None:
            number = counts.get((kind, devices), 0)
            counts[kind, devices] = number + 1
        key = kind, number, devices if kind == _CALL_ON_SEVERAL else ()
        exchange = found.setdefault(key, _Exchange(kind, number))
        exchange.ops |= dict.fromkeys(devices, op)

    for op in by_nccl:
        number = new.get(op.name)
        add(op, _STRATEGYS if number is None else _NEW, (op.device,), number)
    names = {op.name for op in by_nccl}
    for op in ops:
        on = tuple(sorted({device_of[v.op] for v in op.inputs if v.op in device_of}))
        if on and op.name not in names:
            add(op, _CALL if len(on) == 1 else _CALL_ON_SEVERAL, on)
    return list(found.values())


def _tokens(op: Op) -> list[str]:
    """Names of the ops that yield a collective's ordering tokens, its last operands."""
    count = op.attribute("Nordering_token").i
    return [value.op for value in op.inputs[len(op.inputs) - count :]]


def _numbers_of_new(ops: Iterable[Op]) -> Mapping[str, int]:
    """Of each collective that is none of the strategy's own its number on its device, by name."""
    keys = {op.name: op.attribute(CALL_TIME).list.i for op in ops if CALL_TIME in op.node.attr}
    return {
        op.name: keys[value.op][0]
        for op in ops
        for value in op.inputs
        # An input of the traced function has no number.
        if value.op in keys and len(keys[value.op])
    }


def _find_waits(ops: Iterable[Op], exchanges: Sequence[_Exchange]) -> None:
    """Notes the depth of each exchange, and which others it waits for on any device."""
    places: dict[str, list[int]] = {}
    for place, exchange in enumerate(exchanges):
        for name in {op.name for op in exchange.ops.values()}:
            places.setdefault(name, []).append(place)
    # Per op, its depth, and a bit for each exchange that it waits for or takes part in.
    known: dict[str, tuple[int, int]] = {}
    for op in ops:
        sources = [known[name] for name in op.sources]
        depth = 1 + max((deep for deep, _ in sources), default=0)
        behind = 0
        for _, bits in sources:
            behind |= bits
        for place in places.get(op.name, ()):
            own = exchanges[place]
            own.depth = max(own.depth, depth)
            own.before |= {n for n in range(behind.bit_length()) if behind >> n & 1}
            behind |= 1 << place
        known[op.name] = depth, behind


def _in_order(exchanges: Sequence[_Exchange]) -> list[_Exchange]:
    """All of them, each after those that it waits for, and of those that could be next the lowest.

    Raises:
        WuShardError: If two wait for each other, on different devices.
    """
    open_waits = [len(own.before) for own in exchanges]
    needed_by: dict[int, list[int]] = {}
    for place, own in enumerate(exchanges):
        for one in own.before:
            needed_by.setdefault(one, []).append(place)

    def rank(place: int) -> tuple[int, int, int, int]:
        own = exchanges[place]
        return own.depth, own.kind, own.number, place

    ready = [rank(place) for place, count in enumerate(open_waits) if not count]
    heapq.heapify(ready)
    found: list[_Exchange] = []
    while ready:
        *_, place = heapq.heappop(ready)
        found.append(exchanges[place])
        for other in needed_by.get(place, ()):
            open_waits[other] -= 1
            if not open_waits[other]:
                heapq.heappush(ready, rank(other))
    if len(found) < len(exchanges):
        stuck = min(op.name for own in exchanges if own not in found for op in own.ops.values())
        raise WuShardError(
            f"devices want their collectives in different orders, {stuck} among them"
        )
    return found
