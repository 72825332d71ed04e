"""Which slots in shards a function's workers read together, by a collective, and which each alone.

A worker may have a read that the others have not: Python code such as `if chief:` stood in the
function. Read alone, a slot is asked of the others outside of any collective. That needs workers
that write nothing meanwhile, so what the function writes as well is read by all together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.storage.pending_slots import PendingSlot
from tf_wu_shard.storage.sharded_slot import ShardedSlot


def read_together(
    slots: Mapping[str, ShardedSlot], written: Iterable[ShardedSlot | PendingSlot]
) -> set[str]:
    """The slots that all workers read together, by key.

    Args:
        slots: Slots in shards, by key.
        written: Those that the function writes; others may be written with them in one count.
    """
    counts = {id(slot.write_counts) for slot in written}
    return {key for key, slot in slots.items() if id(slot.write_counts) in counts}


def keys_written_in(view: GraphView, handles: Mapping[str, VariableRef]) -> set[str]:
    """Those of some variables that a graph writes, or may, by key.

    Args:
        view: The graph.
        handles: The variables' handles.
    """
    return {ref.key for handle, ref in handles.items() if values_of(view, handle).writes}
