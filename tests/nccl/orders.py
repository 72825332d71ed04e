"""In which order the collectives of each device of a graph come, if the graph says so at all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.ordering import ordered_ops
from tf_wu_shard.reachable import reachable
from tf_wu_shard.tensorflow_private.call_time_inputs import CALL_TIME


def orders_of(nodes: Sequence[Any]) -> dict[str, list[str]]:
    """By device, the names of its collectives in the order that the graph asks for.

    Args:
        nodes: The NodeDefs of a graph.

    Raises:
        AssertionError: If of two collectives of a device neither waits for the other.
    """
    ops = {op.name: op for op in ordered_ops(nodes)}

    def needed(name: str) -> list[str]:
        op = ops[name]
        return [*(value.op for value in op.inputs), *op.controls]

    found: dict[str, list[Op]] = {}
    for op in ops.values():
        if op.type.startswith("Collective"):
            found.setdefault(op.device, []).append(op)
    for own in found.values():
        # The list has each op after all that it waits for.
        for before, after in itertools.pairwise(own):
            assert before.name in reachable([after.name], needed), (before.name, after.name)
    return {device: [op.name for op in own] for device, own in found.items()}


def exchanges_of(nodes: Sequence[Any]) -> dict[str, list[str]]:
    """The same with words that are equal for what devices take part in together.

    Args:
        nodes: The NodeDefs of a graph, as they were traced.
    """
    keys = {node.name: node.attr[CALL_TIME].list.i for node in nodes if CALL_TIME in node.attr}
    words: dict[str, str] = {}
    counts: dict[str, int] = {}
    for node in nodes:
        if node.op.startswith("Collective"):
            new = [number for text in node.input for number in keys.get(text, ())]
            counts.setdefault(node.device, 0)
            number = new[0] if new else counts[node.device]
            counts[node.device] += not new
            words[node.name] = f"{node.op} {'new' if new else 'own'} {number}"
    return {device: [words[name] for name in own] for device, own in orders_of(nodes).items()}
