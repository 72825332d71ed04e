"""Which traced functions concern the pass, asked of every one and so in the cheapest order."""

from __future__ import annotations

from typing import Any

from tf_wu_shard.analysis.accesses import CALLS
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.sparse import SPARSE_WRITES
from tf_wu_shard.rules.variables import WRITES
from tf_wu_shard.storage import function_slots, sharded_slot
from tf_wu_shard.tensorflow_private import function_graph, tpu_graph
from tf_wu_shard.tensorflow_private.distributed_variables import (
    distributed_variable_of,
    is_exporting,
)

# The resource handles that a function captured, `(outside, placeholder)` each.
Handles = list[tuple[Any, Any]]

WRITING = frozenset(WRITES) | frozenset(FUSED) | frozenset(SPARSE_WRITES)


def writes_a_mirrored_variable(graph: Any, handles: Handles) -> bool:
    """Whether a graph holds something to shard at all, asked in the cheapest order."""
    return function_graph.may_write(graph, WRITING) and any(
        is_written(placeholder)
        and (found := distributed_variable_of(handle)) is not None
        and len(found[0].values) > 1
        for handle, placeholder in handles
    )


def uses_variables_on_tpus(graph: Any, handles: Handles, options: ShardingOptions | None) -> bool:
    """Whether a graph holds a TPU program to be sharded, or uses what is in shards on TPUs."""
    if any(sharded_slot.slot_of_packed(handle) is not None for handle, _ in handles):
        return not is_exporting()
    if function_slots.slots_of_callees(graph):
        return True
    return (
        options is not None
        and function_graph.may_write(graph, WRITING | CALLS)
        and bool(tpu_graph.replicated_variables(graph))
    )


def is_written(placeholder: Any) -> bool:
    """Whether an op of the graph itself writes the variable behind a captured handle."""
    return any(t in WRITING for t in function_graph.consumer_types(placeholder))


def may_train(graph: Any) -> bool:
    """Whether a function of its own, no branch or body, may write a variable."""
    return function_graph.may_write(graph, WRITING) and not function_graph.is_branch_or_body(graph)
