"""From what the stages made to a FuncGraph that works, and the storage that goes with it.

What the stages did not touch may still read variables that live in shards; that is led onto them.
"""

from __future__ import annotations

from typing import Any

from tf_wu_shard.dialects.tpu import TpuCluster
from tf_wu_shard.errors import StorageError
from tf_wu_shard.ground import tpu_dialect
from tf_wu_shard.layout import Layout, RowLayout
from tf_wu_shard.pipeline.stages import Outcome
from tf_wu_shard.rewrite.lowering import Lowered, lower_slot_accesses
from tf_wu_shard.rewrite.result import ShardInput
from tf_wu_shard.rewrite.shard_reads import lower_shard_reads
from tf_wu_shard.storage import function_slots, sharded_slot
from tf_wu_shard.tensorflow_private import tpu_graph
from tf_wu_shard.tensorflow_private.graph_rebuilding import rebuild

AnySlot = sharded_slot.ShardedSlot | sharded_slot.PendingSlot


def hand_over(graph: Any, outcome: Outcome) -> tuple[Any, list[sharded_slot.PendingSlot]]:
    """Makes the FuncGraph to use.

    Args:
        graph: The FuncGraph as it was traced; it stays as it is.
        outcome: What the stages made of it.

    Returns:
        The FuncGraph, the same one where there is nothing to do; and the slots that are to move
        into their new storage with it.

    Raises:
        StorageError: If the function does something to a variable in shards that cannot be
            expressed on them.
    """
    captured, nested = outcome.nested.captured, outcome.nested
    planned = {
        **nested.slots,
        **function_slots.planned_slots(captured, outcome.plan),
    }
    pending = {k: s for k, s in planned.items() if isinstance(s, sharded_slot.PendingSlot)}
    owners: list[Any] = [s.shards for s in planned.values()]
    added_inputs = [*nested.inputs, *(outcome.result.shard_inputs if outcome.result else ())]
    bound = {a.placeholder: _handle(planned[a.slot], a) for a in added_inputs}
    slots: dict[str, Any] = dict(function_slots.slots_in_shards(captured))
    lowered: Lowered | None = None
    on_host = function_slots.slots_on_host(graph)
    if on_host or nested.slots:
        lowered, slots = _lowered_on_tpus(graph, outcome, on_host)
    elif slots:
        layouts = {key: s.layout for key, s in slots.items() if isinstance(s.layout, Layout)}
        shards = function_slots.captured_shards(graph, slots)
        lowered = lower_slot_accesses(outcome.view, layouts, shards, captured.view)
    final = lowered or outcome.result or (_as_it_is(outcome) if nested.slots else None)
    if final is None:
        return graph, []
    if lowered is not None:
        owners += [s.shards for s in slots.values()]
        for added in lowered.shard_inputs:
            bound[added.placeholder] = _handle(slots[added.slot], added)
    new = rebuild(
        graph,
        final.nodes,
        outputs=[f"{v.op}:{v.index}" for v in final.outputs],
        control_outputs=final.control_outputs,
        new_captures=bound,
        dropped_captures=function_slots.unused(graph, final, captured.view, {*slots, *pending}),
        owners=owners,
        functions=captured.functions.values(),
    )
    return new, list(pending.values())


def _as_it_is(outcome: Outcome) -> Lowered:
    view = outcome.view
    return Lowered(tuple(op.node for op in view), (), view.control_outputs, view.outputs)


def _lowered_on_tpus(
    graph: Any, outcome: Outcome, on_host: dict[str, sharded_slot.ShardedSlot]
) -> tuple[Lowered | None, dict[str, AnySlot]]:
    """A graph whose reads of variables of a TPUStrategy go to their shards, and those variables."""
    captured = outcome.nested.captured
    keys = {id(variable): key for key, variable in captured.variables.items()}
    slots: dict[str, AnySlot] = dict(outcome.nested.slots)
    slots |= {keys.get(id(slot.variable), name): slot for name, slot in on_host.items()}
    # A variable that enters several programs has a key in each.
    held = {id(slot.variable): slot for slot in on_host.values()}
    slots |= {key: held[id(v)] for key, v in captured.variables.items() if id(v) in held}
    cluster = tpu_graph.cluster_of(graph)

    def dialect_in(program: str) -> TpuCluster:
        assert cluster is not None, "a TPU program without a cluster"
        return tpu_dialect(cluster._replace(name=program), captured)

    layouts = {key: s.layout for key, s in slots.items() if isinstance(s.layout, RowLayout)}
    places = {name: keys.get(id(slot.variable), name) for name, slot in on_host.items()}
    writers = outcome.nested.writers
    try:
        return lower_shard_reads(outcome.view, layouts, places, dialect_in, writers), slots
    except StorageError as error:
        if cluster is None or not cluster.refusal:
            raise
        raise StorageError(f"{cluster.refusal}, so no update is sharded, but {error}") from error


def _handle(shards: AnySlot, added: ShardInput) -> Any:
    """What to bind to a new input: the handle of one shard, or the packed one of all."""
    return shards.packed_handle if added.is_packed else shards.handles[added.replica]
