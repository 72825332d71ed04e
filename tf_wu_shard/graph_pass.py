"""Looks at every function as it is traced and lets passes work on it.

It holds no logic of its own: it asks whether a function concerns passes, captures it, has each
change the step in turn, swaps the graph in, commits storage and publishes the reports. An error
before the swap leaves the function exactly as it was traced.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Sequence
from typing import Any

from absl import logging

from tf_wu_shard import captures, eligibility, gate, passes, refusals
from tf_wu_shard.config import ShardingOptions, current_options
from tf_wu_shard.errors import StorageError, TooLittleShardedError, WuShardError
from tf_wu_shard.grounds.tpu.obstacles import sums_over_replicas
from tf_wu_shard.partial_sums.stand_ins import check_stand_ins
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.nesting import nested_programs
from tf_wu_shard.program.prepare import prepared, prepared_copies
from tf_wu_shard.report.published import (
    is_refused,
    nothing_sharded,
    nothing_to_shard,
    one_line,
    publish,
    reports,
)
from tf_wu_shard.step.capture import Captured, capture
from tf_wu_shard.step.replicas import dialect_of
from tf_wu_shard.step.step import Step
from tf_wu_shard.step.swap import rebuilt
from tf_wu_shard.storage import captured_slots, copies_apart, pending_slots, sharded_slot
from tf_wu_shard.tensorflow_private import (
    creating_traces,
    eager_steps,
    function_graph,
    gradual_saves,
    handle_references,
    tpu_graph,
    traced_graphs,
)
from tf_wu_shard.tensorflow_private.distributed_variables import has_distributed_variable
from tf_wu_shard.weight_update.sharded_update import ShardedUpdate

# It comes last, as it takes the sums of gradients apart.
_SHARDED_UPDATE = ShardedUpdate()

_EAGER = "a step outside tf.function"

_NOT_CHANGED = (
    "tf_wu_shard: a step sums over replicas outside of any tf.function, and %s changes nothing of"
    " it: put a tf.function around the step; in Keras, compile without run_eagerly"
)


def _notice_eager_step() -> None:
    """Says once that a step runs eagerly: a flag is on and can do nothing for it."""
    for one, _ in passes.switched_on():
        logging.log_first_n(logging.WARNING, _NOT_CHANGED, 1, one.flag)
    options = current_options()
    if options is None:
        return
    if options.on_refusal == "raise" or all(r.function != _EAGER for r in reports()):
        refusal = refusals.Topology.RUNS_EAGERLY.at()
        publish(nothing_sharded(_EAGER, refusal), options=options)


def register() -> None:
    """Puts the pass into TensorFlow's tracing; a second call changes nothing."""
    handle_references.install()
    creating_traces.install(lambda: current_options() is not None)
    tpu_graph.install()
    eager_steps.install(_notice_eager_step)
    gradual_saves.install()
    if traced_graphs.install(process):
        for graph in traced_graphs.existing_graphs():
            record(graph, function_graph.captured_handles(graph))


def process(graph: Any, trace_seconds: float) -> Any:
    """Looks at one freshly traced FuncGraph.

    Args:
        graph: The FuncGraph.
        trace_seconds: How long tracing it took.

    Returns:
        The FuncGraph to use: the same one, or a rewritten one.

    Raises:
        WuShardError: When a pass cannot change the function as it was asked to, or the function
            gets batches that may be stand-ins, and no pass has seen to them.
        NothingShardedError: With on_refusal="raise", when the function trains and nothing of it
            is sharded.
        TooLittleShardedError: Likewise, when less than min_sharded of it is.
        StorageError: If the function does something to a sharded slot that cannot be expressed
            on its shards.
    """
    new = _looked_at(graph, trace_seconds)
    check_stand_ins(graph)
    return new


def _looked_at(graph: Any, trace_seconds: float) -> Any:
    start = time.perf_counter()
    asked = _Asked(current_options(), passes.switched_on())
    sight = gate.look(graph, asked.anything)
    if not sight.asked:
        asked = _Asked()
    if sight.is_let_through:
        with traced_graphs.no_garbage_collection():
            new = _processed(graph, sight, asked, (start, trace_seconds))
        if new is not None:
            record(new, sight.handles if new is graph else function_graph.captured_handles(new))
            return new
        if sight.in_shards:
            return graph
    if asked.sharding is not None:
        refusal = gate.against_training(graph, sight.handles)
        if refusal is not None:
            report = nothing_sharded(function_graph.title(graph), refusal)
            publish(report, options=asked.sharding)
    record(graph, sight.handles)
    return graph


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What the user has switched on.

    Attributes:
        sharding: How to shard; None where the flag is off.
        others: The other passes, each with its options.
    """

    sharding: ShardingOptions | None = None
    others: Sequence[tuple[passes.Pass, Any]] = ()

    @property
    def anything(self) -> bool:
        """Whether the flag of any pass is on."""
        return self.sharding is not None or bool(self.others)


def record(graph: Any, handles: gate.Handles) -> None:
    """Notes what a finished function captured of distributed variables, see `captures`.

    Args:
        graph: The FuncGraph.
        handles: The resource handles that it captured.
    """
    captures.record(
        graph,
        [
            handle
            for handle, _ in handles
            if tpu_graph.is_packed(handle) or has_distributed_variable(handle)
        ],
    )


def _processed(
    graph: Any, sight: gate.Sight, asked: _Asked, since: tuple[float, float]
) -> Any | None:
    """Lets passes work on a function, and only then hands over storage and graph.

    Args:
        graph: The FuncGraph.
        sight: What the gate saw of it.
        asked: What the user has switched on.
        since: When this began, and how many seconds tracing took.

    Returns:
        The FuncGraph to use, or None where it is none for passes: one whose calls train nothing
        with what it sums, or a branch that is left to the function that takes it.
    """
    options = asked.sharding
    captured: Captured | None = None
    try:
        captured = capture(graph)
        if not eligibility.is_eligible(graph, captured.view, sight):
            if options is not None:
                copies_apart.notice(graph, captured)
            # There is nothing to shard, but a pass may have changed what it calls.
            asked, options = _Asked(None, passes.called_in(captured.view, asked.others)), None
            if not asked.others:
                if sight.in_shards:
                    traced_graphs.leave_to_caller(graph)
                return None
        # What another pass makes of a call that XLA compiles would not be compiled again.
        step = step_of(graph, captured, options, calls=not asked.others)
        if asked.others:
            _check_in_reach(step)
        before = passes.applied(step, asked.others)
        step = _SHARDED_UPDATE.apply(before, options)
        if options is not None and is_refused(step.reports, options):
            # Before anything live is changed: the error ends the trace.
            _publish(step, options, *since)
        step, new = _made(before, step)
        pending_slots.commit_all(step.pending)
        if step.pending and step.captured.written_out:
            # Called by themselves, they would find nothing where the slots were.
            inner = (function_graph.inner_graph(graph, n) for n in step.captured.written_out)
            traced_graphs.forget(filter(None, inner))
    except (StorageError, TooLittleShardedError) as error:
        _SHARDED_UPDATE.abandon(captured, error)
        if isinstance(error, StorageError) and function_graph.is_nested(graph):
            # Whoever runs it knows what it is handed, and works on what it does.
            traced_graphs.leave_to_caller(graph)
            return None
        raise
    # The traced function must survive any bug of ours. What another pass changes of a training is
    # not to be lost with a line in the log.
    except Exception as error:
        _SHARDED_UPDATE.abandon(captured, error)
        if asked.others:
            flags = ", ".join(one.flag for one, _ in asked.others)
            also = "" if options is None else ", together with the sharding of its update"
            raise WuShardError(
                f"{graph.name} could not be changed as asked for by {flags}{also}: {error}; switch"
                " that off to train without it"
            ) from error
        _report_failure(graph, error, options)
        return _only_lowered(graph, captured)
    if options is not None and (step.reports or step.reported):
        _SHARDED_UPDATE.remember(graph, step)
        _SHARDED_UPDATE.remember(new, step)
    _publish(step, options, *since)
    return new


def _made(before: Step, after: Step) -> tuple[Step, Any]:
    """The FuncGraph of what was made of a step, or of the step as it was if other workers balk."""
    new = rebuilt(after)
    step = _SHARDED_UPDATE.confirmed(before, after)
    return step, new if step is after else rebuilt(step)


def _publish(
    step: Step, options: ShardingOptions | None, start: float, trace_seconds: float
) -> None:
    """Publishes what passes say of a function."""
    living = {flag: said for flag, said in step.changes.items() if callable(said)}
    changes = {
        flag: one_line(said() if callable(said) else said) for flag, said in step.changes.items()
    }
    # A function's own report is the last.
    *inner, own = step.reports if options is not None and step.reports else (None,)
    if own is None and changes:
        off = "weight_update_sharding is off"
        note = off if options is None else "it has nothing of its own to shard"
        own, options = nothing_to_shard(function_graph.title(step.graph), note), None
    if own is None:
        return
    spent = (time.perf_counter() - start) * 1e3
    found = (*inner, dataclasses.replace(own, changes=changes))
    times = {"pass_ms": spent, "trace_ms": spent + trace_seconds * 1e3}
    timed = (dataclasses.replace(report, **times) for report in found)
    publish(*timed, options=options, living=living, variables=step.captured.variables)


def step_of(
    graph: Any, captured: Captured, options: ShardingOptions | None, *, calls: bool = False
) -> Step:
    """A function as passes want it: one program, with its updates in sight.

    Args:
        graph: The FuncGraph.
        captured: What it holds.
        options: How to shard it; None where the flag is off.
        calls: Whether updates in functions that a MirroredStrategy's step calls are to be in sight,
            where they may be sharded or have slots in shards.
    """
    cluster = captured.cluster
    if cluster is None:
        slots = captured_slots.slots_in_shards(captured)
        shards = captured_slots.captured_shards(graph, slots).keys()
        calls = calls and (options is not None or bool(slots))
        traced = TracedGraph(graph)
        program = prepared_copies(traced, captured, slots.keys(), shards, calls=calls)
    else:
        program = prepared(TracedGraph(graph), captured, cluster.name, cluster.num_replicas)
    return Step(graph, program, dialect_of(program, options or ShardingOptions()))


def _check_in_reach(step: Step) -> None:
    """Raises WuShardError if a program sums what passes cannot change: it is not to be skipped."""
    cluster, graph_def = step.captured.cluster, step.view.graph_def
    if cluster is None or not sums_over_replicas(graph_def):
        return
    refusal = cluster.against(graph_def)
    if refusal is not None:
        raise WuShardError(refusal.reason)
    nested = nested_programs(
        TracedGraph(step.graph), step.captured, cluster.name, cluster.num_replicas
    )
    if nested:
        raise WuShardError(
            f"gradients are summed inside of {nested[0].op}, a branch or loop of a TPU program, and"
            " passes work on what the program itself sums"
        )


def _only_lowered(graph: Any, captured: Captured | None) -> Any:
    """The graph as it was traced, but for slots that live in shards already.

    Raises:
        StorageError: If even that fails: as traced, it would read storage that is gone.
    """
    try:
        step = step_of(graph, captured or capture(graph), None, calls=True)
        new = rebuilt(_SHARDED_UPDATE.redirected(step))
    except Exception as error:
        handles = function_graph.captured_handles(graph)
        if not any(
            sharded_slot.sharded_slot_of(handle) or sharded_slot.slot_of_packed(handle)
            for handle, _ in handles
        ):
            return graph
        raise StorageError(
            f"{graph.name} uses optimizer slots that live in shards, and its accesses could not be"
            f" redirected to them: {error}; trace it before the sharded step, or read the slots"
            " outside of it"
        ) from error
    return new


def _report_failure(graph: Any, error: Exception, options: ShardingOptions | None) -> None:
    logging.error("weight-update sharding failed on %s:\n%s", graph.name, traceback.format_exc())
    if options is not None:
        refusal = refusals.Topology.PASS_FAILED.at(error=str(error))
        publish(nothing_sharded(function_graph.title(graph), refusal), options=options)
