"""The registered pass: looks at every function as it is traced and composes the stages.

It holds no logic of its own: which functions concern it, the four stages in a row, the hand-over of
storage and graph, and what is said about it. Whatever goes wrong before the hand-over leaves the
function exactly as it was traced.
"""

from __future__ import annotations

import dataclasses
import sys
import time
import traceback
from typing import Any

from absl import logging

from tf_wu_shard import captures
from tf_wu_shard.analysis.analyze import analyze
from tf_wu_shard.analysis.types import Analysis
from tf_wu_shard.concern import (
    Handles,
    is_written,
    may_train,
    uses_variables_on_tpus,
    writes_a_mirrored_variable,
)
from tf_wu_shard.config import ShardingOptions, current_options
from tf_wu_shard.dialects.tpu import TpuCluster
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.capture import Captured, capture
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.ground import dialect_of, tpu_dialect
from tf_wu_shard.layout import Layout, RowLayout
from tf_wu_shard.plan.planner import make_plan
from tf_wu_shard.plan.types import ShardingPlan
from tf_wu_shard.report.published import nothing_sharded, publish, reports
from tf_wu_shard.report.summary import Report, summarize
from tf_wu_shard.rewrite.lowering import Lowered, lower_slot_accesses
from tf_wu_shard.rewrite.rewriter import RewriteResult, ShardInput, rewrite
from tf_wu_shard.rewrite.shard_reads import lower_shard_reads
from tf_wu_shard.rewrite.verify import verify
from tf_wu_shard.storage import function_slots, sharded_slot
from tf_wu_shard.tensorflow_private import (
    eager_steps,
    function_graph,
    handle_references,
    tpu_graph,
)
from tf_wu_shard.tensorflow_private.distributed_variables import (
    has_distributed_variable,
    is_exporting,
    original_handle,
)
from tf_wu_shard.tensorflow_private.sharded_variables import is_in_shards

# The flag was turned off: what lives in shards goes on doing so, nothing else is touched.
_ONLY_WHAT_IS_IN_SHARDS = ShardingOptions(min_elements=sys.maxsize)

_EAGER = "a step outside tf.function"


def _notice_eager_step() -> None:
    """Says once that a step runs eagerly: the flag is on and can do nothing for it."""
    options = current_options()
    if options is None:
        return
    if options.on_refusal == "raise" or all(r.function != _EAGER for r in reports()):
        reason = "it runs eagerly, so no function is traced that could be rewritten"
        publish(nothing_sharded(_EAGER, reason), options)


def register() -> None:
    """Puts the pass into TensorFlow's tracing; a second call changes nothing."""
    handle_references.install()
    tpu_graph.install()
    eager_steps.install(_notice_eager_step)
    if function_graph.install(process):
        for graph in function_graph.existing_graphs():
            _record(graph, function_graph.captured_handles(graph))


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
        StorageError: If the function does something to a sharded slot that cannot be expressed
            on its shards.
    """
    start = time.perf_counter()
    # A function traced for a SavedModel is not trained here; its file holds whole variables.
    options = None if is_exporting() else current_options()
    handles = function_graph.captured_handles(graph)
    distributed = [(h, p) for h, p in handles if has_distributed_variable(h)]
    in_shards = any(is_in_shards(handle) for handle, _ in distributed) and not is_exporting()
    if (
        in_shards
        or (options is not None and writes_a_mirrored_variable(graph, distributed))
        or uses_variables_on_tpus(graph, handles, options)
    ):
        with function_graph.no_garbage_collection():
            graph = _shard(graph, options, start, trace_seconds)
        handles = function_graph.captured_handles(graph)
    elif options is not None and may_train(graph):
        _warn_of_one_replica(graph, handles, options)
    _record(graph, handles)
    return graph


def _record(graph: Any, handles: Handles) -> None:
    captures.record(
        graph,
        [
            handle
            for handle, _ in handles
            if tpu_graph.is_packed(handle)
            or (has_distributed_variable(handle) and not handle_references.is_being_created(handle))
        ],
    )


def _warn_of_one_replica(graph: Any, handles: Handles, options: ShardingOptions) -> None:
    """Says so when a step trains on one replica: the flag is on and does nothing."""
    trainable = [v for v in graph.variables if v.trainable]
    own = {id(original_handle(c)) for v in trainable for c in getattr(v, "values", (v,))}
    if any(id(h) in own and is_written(p) for h, p in handles):
        report = nothing_sharded(graph.name, "it trains on one replica: no gradient is reduced")
        publish(report, options)


def _shard(graph: Any, options: ShardingOptions | None, start: float, trace_seconds: float) -> Any:
    """Analyses, plans, rewrites, and only then hands over storage and graph."""
    outcome: _Outcome | None = None
    function_slots.check_no_components(graph)
    try:
        captured = capture(graph)
        outcome = _rewritten(graph, captured, options)
        new, pending = _lowered(graph, captured, outcome)
        sharded_slot.commit_all(pending)
    except StorageError:
        raise
    # The traced function must survive any bug of ours.
    except Exception as error:
        _report_failure(graph, error, options)
        return _only_lowered(graph)
    if options is not None and outcome.report is not None:
        now = time.perf_counter()
        timed = dataclasses.replace(
            outcome.report,
            pass_ms=(now - start) * 1e3,
            trace_ms=(now - start + trace_seconds) * 1e3,
        )
        publish(timed, options)
    return new


def _only_lowered(graph: Any) -> Any:
    """The graph as it was traced, but for slots that live in shards already.

    Raises:
        StorageError: If even that fails: as traced, it would read storage that is gone.
    """
    try:
        captured = capture(graph)
        new, _ = _lowered(graph, captured, _Outcome())
    except Exception as error:
        handles = function_graph.captured_handles(graph)
        if not any(
            sharded_slot.sharded_slot_of(handle) or sharded_slot.slot_of_packed(handle)
            for handle, _ in handles
        ):
            return graph
        raise StorageError(
            f"{graph.name} uses optimizer slots that live in shards and could not be led onto"
            f" them: {error}; trace it before the sharded step, or read the slots outside of it"
        ) from error
    return new


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What was done to a graph: what was planned and made of it, and what to say about it."""

    plan: ShardingPlan | None = None
    result: RewriteResult | None = None
    report: Report | None = None

    def view(self, captured: GraphView) -> GraphView:
        """The graph as it is now; `captured` is how it was."""
        if self.result is None:
            return captured
        return GraphView(
            self.result.graph_def,
            variables=captured.variables,
            outputs=self.result.outputs,
            control_outputs=self.result.control_outputs,
            op_def=captured.op_def,
        )


def _rewritten(graph: Any, captured: Captured, options: ShardingOptions | None) -> _Outcome:
    view = captured.view
    cluster = tpu_graph.cluster_of(graph)
    if options is None:
        if cluster is None:
            return _Outcome()
        options = _ONLY_WHAT_IS_IN_SHARDS
    if cluster is not None and cluster.refusal:
        return _Outcome(report=nothing_sharded(graph.name, cluster.refusal))
    dialect = dialect_of(view, cluster, captured, options)
    analysis = analyze(view, dialect)
    if function_graph.is_branch_or_body(graph) and analysis.updates:
        return _Outcome(report=_inside_branch(graph, analysis))
    plan = make_plan(
        analysis,
        options,
        min_elements=dialect.min_elements,
        bucket_bytes=dialect.bucket_bytes,
        most_buckets=dialect.most_buckets,
        pinned=function_slots.pinned(graph, analysis, captured),
        in_shards=function_slots.slots_in_shards(captured).keys(),
        layout_of=dialect.layout,
        weights_in_shards=dialect.weights_in_shards,
    )
    if not plan.variables:
        concerns = bool(analysis.updates or analysis.refusals or plan.left_alone)
        report = summarize(graph.name, analysis, plan, {}) if concerns else None
        return _Outcome(report=report)
    result = rewrite(view, analysis, plan, dialect)
    verify(view, analysis, plan, result)
    return _Outcome(plan, result, summarize(graph.name, analysis, plan, result.emitted))


def _lowered(
    graph: Any, captured: Captured, outcome: _Outcome
) -> tuple[Any, list[sharded_slot.PendingSlot]]:
    """The FuncGraph to use, and the slots whose storage goes with it."""
    planned = function_slots.planned_slots(captured, outcome.plan)
    pending = {k: s for k, s in planned.items() if isinstance(s, sharded_slot.PendingSlot)}
    owners: list[Any] = [s.shards for s in planned.values()]
    added_inputs = outcome.result.shard_inputs if outcome.result is not None else ()
    bound = {a.placeholder: _handle(planned[a.slot], a) for a in added_inputs}
    slots = function_slots.slots_in_shards(captured)
    lowered: Lowered | None = None
    on_host = function_slots.slots_on_host(graph)
    if on_host:
        lowered, slots = _lowered_on_tpus(graph, captured, outcome, on_host)
    elif slots:
        view = outcome.view(captured.view)
        layouts = {key: s.layout for key, s in slots.items() if isinstance(s.layout, Layout)}
        shards = function_slots.captured_shards(graph, slots)
        lowered = lower_slot_accesses(view, layouts, shards, captured.view)
    if lowered is None and outcome.result is None:
        return graph, []
    final: Lowered | RewriteResult | None = lowered or outcome.result
    assert final is not None, "nothing was done, and something is to be rebuilt"
    if lowered is not None:
        owners += [s.shards for s in slots.values()]
        for added in lowered.shard_inputs:
            bound[added.placeholder] = _handle(slots[added.slot], added)
    new = function_graph.rebuild(
        graph,
        final.nodes,
        outputs=[f"{v.op}:{v.index}" for v in final.outputs],
        control_outputs=final.control_outputs,
        new_captures=bound,
        dropped_captures=function_slots.unused(graph, final, captured.view, {*slots, *pending}),
        owners=owners,
    )
    return new, list(pending.values())


def _lowered_on_tpus(
    graph: Any,
    captured: Captured,
    outcome: _Outcome,
    on_host: dict[str, sharded_slot.ShardedSlot],
) -> tuple[Lowered | None, dict[str, sharded_slot.ShardedSlot]]:
    """A graph whose reads of variables of a TPUStrategy go to their shards, and those variables."""
    keys = {id(variable): key for key, variable in captured.variables.items()}
    slots = {keys.get(id(slot.variable), name): slot for name, slot in on_host.items()}
    # A variable that enters several programs has a key in each.
    held = {id(slot.variable): slot for slot in on_host.values()}
    slots |= {key: held[id(v)] for key, v in captured.variables.items() if id(v) in held}
    view = outcome.view(captured.view)
    cluster = tpu_graph.cluster_of(graph)

    def dialect_in(program: str) -> TpuCluster:
        assert cluster is not None, "a TPU program without a cluster"
        return tpu_dialect(cluster._replace(name=program), captured)

    layouts = {key: s.layout for key, s in slots.items() if isinstance(s.layout, RowLayout)}
    places = {name: keys.get(id(slot.variable), name) for name, slot in on_host.items()}
    try:
        return lower_shard_reads(view, layouts, places, dialect_in), slots
    except StorageError as error:
        if cluster is None or not cluster.refusal:
            raise
        raise StorageError(f"{cluster.refusal}, so no update is sharded, but {error}") from error


def _handle(shards: sharded_slot.ShardedSlot | sharded_slot.PendingSlot, added: ShardInput) -> Any:
    """What to bind to a new input: the handle of one shard, or the packed one of all."""
    return shards.packed_handle if added.is_packed else shards.handles[added.replica]


def _inside_branch(graph: Any, analysis: Analysis) -> Report:
    reason = "its update runs inside a tf.cond branch or a tf.while_loop body"
    names = tuple(update.name for update in analysis.updates)
    report = nothing_sharded(graph.name, reason, names)
    return dataclasses.replace(report, num_replicas=analysis.num_replicas)


def _report_failure(graph: Any, error: Exception, options: ShardingOptions | None) -> None:
    logging.error("weight-update sharding failed on %s:\n%s", graph.name, traceback.format_exc())
    if options is not None:
        reason = f"the pass failed and left the function as it was: {error}"
        publish(nothing_sharded(graph.name, reason), options)
