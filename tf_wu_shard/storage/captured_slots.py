"""Which variables in shards a traced function captured, and in which ways."""

from __future__ import annotations

from typing import Any, NamedTuple

from tf_wu_shard.layout import TileLayout
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.storage import sharded_slot
from tf_wu_shard.storage.sharded_slot import ShardedSlot, sharded_slot_of
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle


def slots_in_shards(captured: Captured) -> dict[str, ShardedSlot]:
    """The slots of a function that live in shards already.

    Args:
        captured: The function's graph and variables.

    Returns:
        For each such variable, by its key in the view, its shards.
    """
    return {
        key: held
        for key, variable in captured.variables.items()
        if (held := sharded_slot_of(original_handle(variable.values[0]))) is not None
    }


def captured_shards(graph: Any, slots: dict[str, ShardedSlot]) -> dict[str, str]:
    """The shards that a function captured for a callee that was redirected when it was traced.

    Args:
        graph: The function's FuncGraph.
        slots: Slots that live in shards, by key.

    Returns:
        For each placeholder of such a shard, or of all shards of a slot, by name, the slot's key.
    """
    keys = {id(handle): key for key, slot in slots.items() for handle in slot.handles}
    of_slot = {id(slot): key for key, slot in slots.items()}
    found: dict[str, str] = {}
    for handle, placeholder in function_graph.captured_handles(graph):
        slot = sharded_slot.slot_of_shard(handle)
        key = keys.get(id(handle)) if slot is None else of_slot.get(id(slot))
        if key is not None:
            found[placeholder.op.name] = key
    return found


def uses_shards_on_tpus(graph: Any) -> bool:
    """Whether a function has to do with what lives in shards on TPUs.

    Args:
        graph: The function's FuncGraph.
    """
    return bool(slots_of_callees(graph)) or any(
        sharded_slot.slot_of_packed(handle) is not None
        for handle, _ in function_graph.captured_handles(graph)
    )


def slots_of_callees(graph: Any) -> list[ShardedSlot]:
    """The variables of a TPUStrategy whose shards a function captured in two ways.

    One callee takes them one by one and another all as one; TensorFlow puts accesses of one handle
    in order, and does not know that these are the same.

    Args:
        graph: The function's FuncGraph.
    """
    ways: dict[int, set[bool]] = {}
    found: dict[int, ShardedSlot] = {}
    for handle, _ in function_graph.captured_handles(graph):
        slot = sharded_slot.slot_of_shard(handle)
        if slot is not None:
            found[id(slot)] = slot
            ways.setdefault(id(slot), set()).add(handle is slot.packed_handle)
    return [slot for key, slot in found.items() if len(ways[key]) > 1]


class OnHost(NamedTuple):
    """What the host has of variables in shards.

    Attributes:
        slots: The variables, by the name of the placeholder that stands for the whole of one.
        components: Those placeholders among them that stand for one replica's component.
    """

    slots: dict[str, ShardedSlot]
    components: frozenset[str]


def slots_on_host(graph: Any) -> OnHost:
    """The variables of a TPUStrategy in shards that a function captured, not their shards.

    Args:
        graph: The function's FuncGraph.
    """
    slots: dict[str, ShardedSlot] = {}
    components: set[str] = set()
    for handle, placeholder in function_graph.captured_handles(graph):
        packed, own = sharded_slot.slot_of_packed(handle), sharded_slot_of(handle)
        slot = packed or own
        if slot is not None and isinstance(slot.layout, TileLayout):
            slots[placeholder.op.name] = slot
            if packed is None:
                components.add(placeholder.op.name)
    return OnHost(slots, frozenset(components))
