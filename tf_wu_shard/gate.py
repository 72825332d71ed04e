"""Which traced functions a pass may concern at all, asked of every function of the process.

It looks at op types and captured handles alone and takes microseconds, as every model, metric and
tf.data function comes by. What it lets through is captured, and `eligibility` asks the rest.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_wu_shard.grounds.in_process.recognise import SUMS
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.registry import family_of
from tf_wu_shard.rules.sparse import SPARSE_WRITES
from tf_wu_shard.rules.variables import READ, WRITES
from tf_wu_shard.step.accesses import CALLS, STATEFUL_BRANCHES
from tf_wu_shard.storage import captured_slots, sharded_slot
from tf_wu_shard.tensorflow_private import function_graph, tpu_graph
from tf_wu_shard.tensorflow_private.distributed_variables import (
    distributed_variable_of,
    has_distributed_variable,
    is_exporting,
    num_replicas_of,
    original_handle,
)
from tf_wu_shard.tensorflow_private.sharded_variables import is_in_shards

# The resource handles that a function captured, `(outside, placeholder)` each.
Handles = list[tuple[Any, Any]]

WRITING = frozenset(WRITES) | frozenset(FUSED) | frozenset(SPARSE_WRITES)

# What yields a value that was there before.
_HELD = frozenset({READ, "Const", "Placeholder"})


@dataclasses.dataclass(frozen=True)
class Sight:
    """What the gate sees of a traced function.

    Attributes:
        handles: The resource handles that it captured.
        in_shards: Those of variables that live in shards.
        trains: Whether it may train variables of several replicas, or uses some that are in shards.
        calls: Names of the calls that it hands variables of several replicas.
    """

    handles: Handles
    in_shards: Handles
    trains: bool
    calls: tuple[str, ...]

    @property
    def is_let_through(self) -> bool:
        """Whether a pass may concern the function."""
        return self.trains or bool(self.calls)


def look(graph: Any, wanted: bool) -> Sight:
    """Looks at a traced function.

    Args:
        graph: The FuncGraph.
        wanted: Whether the flag of any pass is on; otherwise only what lives in shards matters.
    """
    handles = function_graph.captured_handles(graph)
    distributed = [(h, p) for h, p in handles if has_distributed_variable(h)]
    in_shards = [] if is_exporting() else [(h, p) for h, p in distributed if is_in_shards(h)]
    trains = bool(
        in_shards
        or (wanted and _writes_a_mirrored_variable(graph, distributed))
        or _uses_variables_on_tpus(graph, handles, wanted)
    )
    calls = () if trains or not wanted else _calls_with_mirrored_variables(graph, distributed)
    return Sight(handles, in_shards, trains, calls)


def _writes_a_mirrored_variable(graph: Any, handles: Handles) -> bool:
    """Whether a graph holds something to shard at all, asked in the cheapest order."""
    writing = WRITING | STATEFUL_BRANCHES
    return function_graph.may_write(graph, writing) and any(
        is_written(placeholder, writing) and _is_mirrored(handle) for handle, placeholder in handles
    )


def _uses_variables_on_tpus(graph: Any, handles: Handles, wanted: bool) -> bool:
    """Whether a graph holds a TPU program to be changed, or uses what is in shards on TPUs."""
    if any(sharded_slot.slot_of_packed(handle) is not None for handle, _ in handles):
        return not is_exporting()
    if captured_slots.slots_of_callees(graph):
        return True
    return (
        wanted
        and function_graph.may_write(graph, WRITING | CALLS)
        and bool(tpu_graph.replicated_variables(graph))
    )


def _calls_with_mirrored_variables(graph: Any, handles: Handles) -> tuple[str, ...]:
    """Names of the calls that take variables of several replicas, where something may be summed.

    Branches are no calls here: what they do stands in the function itself.
    """
    called = CALLS - STATEFUL_BRANCHES
    if not function_graph.may_write(graph, called):
        return ()
    if not function_graph.op_types(graph) & SUMS:
        return ()
    found = (
        op.name
        for handle, placeholder in handles
        if _is_mirrored(handle)
        for op in placeholder.consumers()
        if op.type in called
    )
    return tuple(dict.fromkeys(found))


def _is_mirrored(handle: Any) -> bool:
    found = distributed_variable_of(handle)
    return found is not None and len(found[0].values) > 1


def is_written(placeholder: Any, by: frozenset[str] = WRITING) -> bool:
    """Whether an op of the graph itself, of a type in `by`, takes a captured handle to write it."""
    return any(t in by for t in function_graph.consumer_types(placeholder))


@dataclasses.dataclass(frozen=True)
class TrainsAlone:
    """A function of its own that trains variables of one replica.

    Attributes:
        beside_others: Whether it also uses variables of several replicas.
    """

    beside_others: bool


def trains_alone(graph: Any, handles: Handles) -> TrainsAlone | None:
    """Whether a function that was not let through trains: the flag is on and does nothing.

    Args:
        graph: The FuncGraph.
        handles: The resource handles that it captured.
    """
    of_its_own = not function_graph.is_branch_or_body(graph)
    if not (of_its_own and function_graph.may_write(graph, WRITING)):
        return None
    trainable = [v for v in graph.variables if v.trainable]
    own = {id(original_handle(c)) for v in trainable for c in getattr(v, "values", (v,))}
    if not any(id(h) in own and _computes_what_it_writes(p) for h, p in handles):
        return None
    return TrainsAlone(any(num_replicas_of(h) > 1 for h, _ in handles))


def _computes_what_it_writes(placeholder: Any) -> bool:
    """Whether a variable is written with more than arithmetic on what variables hold.

    A copy, an average of weights or a reset trains nothing; behind a weight update there always is
    a layer.

    Args:
        placeholder: The variable's captured handle inside of the function.
    """
    stack, seen = _writes(placeholder), set()
    while stack:
        op = stack.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if op.type not in _HELD and op.type not in WRITES and family_of(op.type) is None:
            return True
        if op.type == READ:
            # A slot, say, is written with the gradient first, and then read.
            stack += _writes(op.inputs[0])
        else:
            stack += [tensor.op for tensor in op.inputs]
    return False


def _writes(placeholder: Any) -> list[Any]:
    return [op for op in placeholder.consumers() if op.type in WRITING]
