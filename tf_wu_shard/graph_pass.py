"""The registered pass: looks at every function as it is traced and composes the stages.

It holds no logic of its own: it asks whether a function concerns it, runs the four stages, hands
storage and graph over and publishes the reports. An error before the hand-over leaves the function
exactly as it was traced.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
import weakref
from typing import Any

from absl import logging

from tf_wu_shard import captures, refusals
from tf_wu_shard.concern import (
    Handles,
    computes_what_it_writes,
    hands_sums_to_writers,
    is_left_to_its_function,
    may_train,
    uses_variables_on_tpus,
    writes_a_mirrored_variable,
)
from tf_wu_shard.config import ShardingOptions, current_options
from tf_wu_shard.dialects.recognition import sums_in_process
from tf_wu_shard.errors import StorageError, TooLittleShardedError
from tf_wu_shard.graph.capture import Captured, capture
from tf_wu_shard.graph.tpu_cluster import cluster_of
from tf_wu_shard.pipeline.hand_over import hand_over
from tf_wu_shard.pipeline.nested_updates import NestedUpdates
from tf_wu_shard.pipeline.stages import Outcome, run_stages
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.if_conversion import if_converted
from tf_wu_shard.program.prepare import prepared
from tf_wu_shard.report.published import is_refused, nothing_sharded, publish, reports
from tf_wu_shard.report.summary import Report
from tf_wu_shard.storage import sharded_slot
from tf_wu_shard.tensorflow_private import (
    creating_traces,
    eager_steps,
    function_graph,
    handle_references,
    tpu_graph,
)
from tf_wu_shard.tensorflow_private.distributed_variables import (
    has_distributed_variable,
    is_exporting,
    num_replicas_of,
    original_handle,
)
from tf_wu_shard.tensorflow_private.sharded_variables import is_in_shards

# Functions already reported; a caller adds no second report.
_reported: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()

_EAGER = "a step outside tf.function"


def _notice_eager_step() -> None:
    """Says once that a step runs eagerly: the flag is on and can do nothing for it."""
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
    if function_graph.install(process):
        for graph in function_graph.existing_graphs():
            record(graph, function_graph.captured_handles(graph))


def process(graph: Any, trace_seconds: float) -> Any:
    """Looks at one freshly traced FuncGraph.

    Args:
        graph: The FuncGraph.
        trace_seconds: How long tracing it took.

    Returns:
        The FuncGraph to use: the same one, or a rewritten one.

    Raises:
        NothingShardedError: With on_refusal="raise", when the function trains and nothing of it
            is sharded.
        TooLittleShardedError: Likewise, when less than min_sharded of it is.
        StorageError: If the function does something to a sharded slot that cannot be expressed
            on its shards.
    """
    start = time.perf_counter()
    # A function traced for a SavedModel is not trained here; its file holds whole variables.
    options = None if is_exporting() else current_options()
    if creating_traces.makes_variables(graph):
        # TensorFlow traces the function once more; that trace is the one to shard and report.
        options = None
    handles = function_graph.captured_handles(graph)
    distributed = [(h, p) for h, p in handles if has_distributed_variable(h)]
    in_shards = [] if is_exporting() else [(h, p) for h, p in distributed if is_in_shards(h)]
    if in_shards and is_left_to_its_function(graph, in_shards):
        return graph
    if (
        in_shards
        or (options is not None and writes_a_mirrored_variable(graph, distributed))
        or uses_variables_on_tpus(graph, handles, options)
        or (options is not None and hands_sums_to_writers(graph, distributed))
    ):
        with function_graph.no_garbage_collection():
            graph = _shard(graph, options, start, trace_seconds)
        handles = function_graph.captured_handles(graph)
    elif options is not None and may_train(graph):
        _warn_of_one_replica(graph, handles, options)
    record(graph, handles)
    return graph


def record(graph: Any, handles: Handles) -> None:
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


def _warn_of_one_replica(graph: Any, handles: Handles, options: ShardingOptions) -> None:
    """Says so when a step trains one replica's variables: the flag is on and does nothing."""
    trainable = [v for v in graph.variables if v.trainable]
    own = {id(original_handle(c)) for v in trainable for c in getattr(v, "values", (v,))}
    if any(id(h) in own and computes_what_it_writes(p) for h, p in handles):
        spread = any(num_replicas_of(h) > 1 for h, _ in handles)
        refusal = refusals.Topology.ONE_REPLICA.at()
        if spread:
            refusal = refusals.Topology.OTHER_WORKERS.at()
        publish(nothing_sharded(function_graph.title(graph), refusal), options=options)


def _shard(graph: Any, options: ShardingOptions | None, start: float, trace_seconds: float) -> Any:
    """Analyses, plans, rewrites, and only then hands over storage and graph."""
    try:
        captured = captured_program(graph)
        outcome = run_stages(graph, captured, options, _reported)
        if options is not None and is_refused(outcome.reports, options):
            # Before anything live is changed: the error ends the trace.
            publish(*_timed(outcome, start, trace_seconds), options=options)
        new, pending = hand_over(graph, outcome, options)
        sharded_slot.commit_all(pending)
    except (StorageError, TooLittleShardedError):
        raise
    # The traced function must survive any bug of ours.
    except Exception as error:
        _report_failure(graph, error, options)
        return _only_lowered(graph)
    if options is not None and outcome.reports:
        _reported.update(dict.fromkeys((graph, new), outcome.reported))
        publish(*_timed(outcome, start, trace_seconds), options=options)
    return new


def _timed(outcome: Outcome, start: float, trace_seconds: float) -> list[Report]:
    spent = (time.perf_counter() - start) * 1e3
    return [
        dataclasses.replace(report, pass_ms=spent, trace_ms=spent + trace_seconds * 1e3)
        for report in outcome.reports
    ]


def captured_program(graph: Any) -> Captured:
    """Reads a FuncGraph as the stages want it: one program, branches that may go converted.

    Args:
        graph: The FuncGraph.
    """
    captured = capture(graph)
    cluster = cluster_of(graph)
    if cluster is None:
        return if_converted(TracedGraph(graph), captured, "", sums_in_process)
    return prepared(TracedGraph(graph), captured, cluster.name, cluster.num_replicas)


def _only_lowered(graph: Any) -> Any:
    """The graph as it was traced, but for slots that live in shards already.

    Raises:
        StorageError: If even that fails: as traced, it would read storage that is gone.
    """
    try:
        captured = captured_program(graph)
        new, _ = hand_over(graph, Outcome(NestedUpdates(captured)), None)
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
