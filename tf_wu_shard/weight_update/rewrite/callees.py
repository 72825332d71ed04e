"""Calls whose callees were redirected to shards when they were traced, and take these themselves.

No control edge orders such a call against what the caller does to the variable, as TensorFlow takes
the handles of shards for other resources.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.accesses import accesses


def calls_on_shards(view: GraphView, shards: Mapping[str, str]) -> dict[str, dict[str, bool]]:
    """Finds them.

    Args:
        view: The graph that calls.
        shards: For each of its placeholders that is a shard's own handle, the slot's key.

    Returns:
        For each slot, by key, the names of ops that take shards of it, each with whether it may
        write them.
    """
    found: dict[str, dict[str, bool]] = {}
    for placeholder, key in shards.items():
        for access in accesses(view, placeholder):
            on_slot = found.setdefault(key, {})
            name = access.op.name
            on_slot[name] = on_slot.get(name, False) or not access.access.is_read
    return found
