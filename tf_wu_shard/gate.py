"""Which traced functions a pass may concern at all, asked of every function of the process.

It looks at op types and captured handles alone and takes microseconds, as every model, metric and
tf.data function comes by. What it lets through is captured, and `eligibility` asks the rest.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import CALLS, STATEFUL_BRANCHES, callee_names
from tf_wu_shard.grounds.in_process.recognise import SUMS
from tf_wu_shard.reachable import reachable
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.registry import family_of
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITING, is_plain_write
from tf_wu_shard.storage import captured_slots, copies_apart
from tf_wu_shard.tensorflow_private import function_graph, tpu_graph
from tf_wu_shard.tensorflow_private.creating_traces import makes_variables
from tf_wu_shard.tensorflow_private.distributed_variables import (
    has_distributed_variable,
    is_exporting,
    is_of_replicas,
    num_components,
    original_handle,
    strategy_of_single_variables,
)
from tf_wu_shard.tensorflow_private.sharded_variables import is_in_shards

# The resource handles that a function captured, `(outside, placeholder)` each.
Handles = list[tuple[Any, Any]]

# Branches are no calls here: what they do stands in the function itself.
_CALLED = CALLS - STATEFUL_BRANCHES

# What replicas do together. A function that does so may do it to what calls train, or wait where
# these do not. Of others it only matters what they hand to calls that write.
_TOGETHER = SUMS | {"CollectiveGatherV2"}

# What yields a value that was there before.
_HELD = frozenset({READ, "Const", "Placeholder"})


@dataclasses.dataclass(frozen=True)
class Sight:
    """What the gate sees of a traced function.

    Attributes:
        asked: Whether a pass is asked for, and this is a trace to work on and to report.
        handles: The resource handles that it captured.
        in_shards: Those of variables that live in shards.
        trains: Whether it may train variables of several replicas, or uses some that are in shards.
        calls: Names of the calls that it hands variables of several replicas, where what else it
            hands them may matter.
    """

    asked: bool
    handles: Handles
    in_shards: Handles
    trains: bool
    calls: tuple[str, ...]

    @property
    def is_let_through(self) -> bool:
        """Whether a pass may concern the function."""
        return self.trains or bool(self.calls)


def look(graph: Any, wanted: bool, *, every_trace: bool = False) -> Sight:
    """Looks at a traced function.

    A function traced for a SavedModel is not trained here; its file holds whole variables. Of one
    that makes variables TensorFlow makes another trace, which is the one to work on and to report.

    Args:
        graph: The FuncGraph.
        wanted: Whether the flag of any pass is on; otherwise only what lives in shards matters.
        every_trace: Whether passes may look at such traces, too.
    """
    trains = captured_slots.uses_shards_on_tpus(graph)
    wanted = wanted and (every_trace or not (is_exporting() or makes_variables(graph)))
    handles = function_graph.captured_handles(graph)
    distributed = [(h, p) for h, p in handles if has_distributed_variable(h)]
    in_shards = [] if is_exporting() else [(h, p) for h, p in distributed if is_in_shards(h)]
    trains = trains or bool(in_shards)
    # What is cheap to ask comes first: most functions write nothing.
    if wanted and not trains and function_graph.may_write(graph, WRITING | CALLS):
        written = function_graph.taken_by(distributed, WRITING | STATEFUL_BRANCHES)
        trains = any(map(is_of_replicas, written)) or bool(tpu_graph.replicated_variables(graph))
    calls: tuple[str, ...] = ()
    hands_on = wanted and not trains and function_graph.may_write(graph, _CALLED)
    if hands_on:
        together = not function_graph.op_types(graph).isdisjoint(_TOGETHER)
        # One call takes the handles of a whole model.
        writes = functools.cache(lambda call: _writes_an_argument(graph, call))
        calls = function_graph.takers(
            distributed,
            _CALLED,
            lambda handle, call: (
                (is_of_replicas(handle) and (together or writes(call)))
                or copies_apart.is_written_within(handle)
            ),
        )
    return Sight(wanted, handles, in_shards, trains, calls)


def _writes_an_argument(graph: Any, call: Any) -> bool:
    """Whether a function may write a variable that its caller hands it.

    Args:
        graph: The caller's FuncGraph.
        call: The op that calls it.
    """

    def called(caller: Any, op: Any) -> list[Any]:
        names = callee_names(op.node_def) if op.type in CALLS else ()
        found = (function_graph.inner_graph(caller, name) for name in names)
        return [inner for inner in found if inner is not None]

    @functools.cache  # A function may be called in many places.
    def takers(inner: Any) -> set[Any]:
        return {op for given in function_graph.handed_handles(inner) for op in given.consumers()}

    functions = reachable(
        called(graph, call),
        lambda inner: [one for op in takers(inner) for one in called(inner, op)],
    )
    return any(op.type in WRITING for inner in functions for op in takers(inner))


def against_training(graph: Any, handles: Handles) -> Refusal | None:
    """What keeps the updates of a function that was not let through whole.

    Args:
        graph: The FuncGraph, in the strategy's scope that it was traced in.
        handles: The resource handles that it captured.

    Returns:
        Why the flag does nothing for it, or None where it trains nothing.
    """
    of_its_own = not function_graph.is_branch_or_body(graph)
    if not (of_its_own and function_graph.may_write(graph, WRITING)):
        return None
    trainable = [v for v in graph.variables if v.trainable]
    own = {id(original_handle(c)) for v in trainable for c in getattr(v, "values", (v,))}
    trained = [h for h, p in handles if id(h) in own and _computes_what_it_writes(p)]
    if not trained:
        return None
    if (strategy := strategy_of_single_variables()) is not None:
        return refusals.Topology.VARIABLES_EXIST_ONCE.at(strategy=strategy)
    if any(num_components(handle) > 1 for handle in trained):
        return refusals.Topology.VARIABLES_OF_EACH_REPLICA.at()
    return refusals.Topology.ONE_REPLICA.at()


def _computes_what_it_writes(placeholder: Any) -> bool:
    """Whether a variable is written with more than arithmetic on what variables hold.

    A copy, an average of weights or a reset trains nothing; behind a weight update there always is
    a layer.

    Args:
        placeholder: The variable's captured handle inside of the function.
    """

    def before(op: Any) -> list[Any]:
        # A slot, say, is written with the gradient first, and then read.
        return _writes(op.inputs[0]) if op.type == READ else [tensor.op for tensor in op.inputs]

    return any(
        op.type not in _HELD and not is_plain_write(op.type) and family_of(op.type) is None
        for op in reachable(_writes(placeholder), before)
    )


def _writes(placeholder: Any) -> list[Any]:
    return [op for op in placeholder.consumers() if op.type in WRITING]
