"""The stages in a row, on one graph: analysis, plan, rewrite, verification, report."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tf_wu_shard import refusals
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.obstacles import sums_over_replicas
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.report.published import nothing_sharded
from tf_wu_shard.report.report import Report
from tf_wu_shard.rules.writes import WRITING
from tf_wu_shard.step.called_graphs import called_graphs
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.replicas import tpu_dialect
from tf_wu_shard.step.step import Step
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.storage import copies_apart
from tf_wu_shard.tensorflow_private import function_graph, xla_contexts
from tf_wu_shard.weight_update import all_workers, function_slots
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.nested_updates import NestedUpdates, share_nested_updates
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.report_lines import with_line
from tf_wu_shard.weight_update.rewrite.result import RewriteResult
from tf_wu_shard.weight_update.sharding import Sharding, plan_sharding

# The flag was turned off: what lives in shards goes on doing so, nothing else is touched.
_ONLY_WHAT_IS_IN_SHARDS = ShardingOptions(min_elements=sys.maxsize)


# FuncGraphs that were looked at, each with the ids of the variables that its reports are about, and
# of those that it writes and does not train.
Reported: TypeAlias = Mapping[Any, frozenset[int]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What was done to a graph: what was planned and made of it, and what to say of it.

    Attributes:
        nested: What became of its branches and bodies.
        sharding: What is planned, and made; None where nothing may be sharded.
        report: What to say of it; None where there is nothing to say.
        constraints: What the plan was asked to leave as it is.
        analysis: What it was made from, for whoever plans again for other replicas.
    """

    nested: NestedUpdates
    sharding: Sharding | None = None
    report: Report | None = None
    constraints: StorageConstraints | None = None
    analysis: Analysis | None = None

    @property
    def result(self) -> RewriteResult | None:
        """What was made of the graph; None where nothing of it is sharded."""
        return None if self.sharding is None else self.sharding.result

    @property
    def taken_places(self) -> Mapping[str, Sequence[str]]:
        """For each op of the graph that took the place of old ones, by name, these."""
        return {} if self.result is None else self.result.taken_places

    @property
    def reports(self) -> list[Report]:
        """What to say of the graph and of what is nested in it."""
        return [*self.nested.reports, *([self.report] if self.report is not None else [])]

    @property
    def reported(self) -> frozenset[int]:
        """The ids of the variables of which a caller has no more to report, see `Reported`."""
        names = {v.name for report in self.reports for v in report.variables}
        names |= {v.name for report in self.reports for v in report.left_alone}
        # Of what is updated together, such as an average of a weight with it, a report names one.
        together = self.analysis.updates if self.analysis is not None and self.report else ()
        names |= {v.key for update in together for v in update.variables}
        names |= self.analysis.untrained if self.analysis is not None else frozenset()
        variables = self.nested.captured.variables
        return frozenset(id(variable) for key, variable in variables.items() if key in names)

    @property
    def view(self) -> GraphView:
        """The graph as it is now."""
        captured = self.nested.captured.view
        return captured if self.result is None else self.result.view(captured)


def run_stages(step: Step, options: ShardingOptions | None, reported: Reported) -> Outcome:
    """Analyses, plans, rewrites and verifies; nothing live is changed, but for notes on weights.

    Those say which function moves their copies apart, see `copies_apart`.

    Args:
        step: The function, what its TPU program calls brought out.
        options: What the user asked for; None where the flag is off.
        reported: FuncGraphs that were reported, with the variables that their reports are about.

    Returns:
        What was made of it.
    """
    graph, captured, dialect = step.graph, step.captured, step.dialect
    nested = NestedUpdates(captured)
    cluster = captured.cluster
    if options is None:
        if cluster is None:
            all_workers.check_without_flag(captured)
            return Outcome(nested)
        options = _ONLY_WHAT_IS_IN_SHARDS
    title = function_graph.title(graph)
    if step.unsharded is not None:
        return Outcome(nested, report=_left_whole(title, captured, step.unsharded))
    if cluster is not None:
        graph_def = captured.view.graph_def
        refusal = cluster.against(graph_def)
        if refusal is not None:
            return Outcome(nested, report=_refused(title, captured, refusal))
        nested = share_nested_updates(
            graph,
            captured,
            cluster,
            lambda program: tpu_dialect(cluster._replace(name=program), captured),
            options,
        )
    captured = nested.captured
    view = captured.view
    found = analyze(view, dialect).with_reasons(captured.kept_branches)
    updates = [({v.key for v in one.variables}, one.outside) for one in found.updates]
    copies_apart.notice(graph, captured, updates)
    analysis = _without_reported(graph, captured, found, nested.reports, reported)
    if cluster is None and analysis.updates and xla_contexts.is_compiled(graph, WRITING):
        analysis = analysis.without_updates(refusals.Topology.COMPILED_BY_XLA.at())
    planned = _planning(functools.partial(plan_sharding, analysis, dialect, options))
    constraints = function_slots.storage_constraints(graph, analysis, captured, planned)
    chosen = planned(constraints)
    refusal = all_workers.against_others(captured, chosen.plan, options)
    if refusal is not None:
        names = tuple(v.variable for v in chosen.plan.variables)
        left = nothing_sharded(title, refusal, names)
        return Outcome(nested, report=left, constraints=constraints)
    entering = itertools.chain.from_iterable(v.update.outside for v in chosen.plan.variables)
    copies_apart.note_reads(title, captured, entering)
    sharding = chosen.rewritten(view)
    report = with_line(sharding.report(title), graph) if sharding.concerns else None
    return Outcome(nested, sharding, report, constraints, analysis)


def _planning(
    plan: Callable[[StorageConstraints], Sharding],
) -> Callable[[StorageConstraints], Sharding]:
    """Plans for constraints, once where it is asked again for what was asked last."""
    last: list[tuple[StorageConstraints, Sharding]] = []

    def planned(constraints: StorageConstraints) -> Sharding:
        if not last or last[0][0] != constraints:
            last[:] = [(constraints, plan(constraints))]
        return last[0][1]

    return planned


def _refused(title: str, captured: Captured, refusal: Refusal) -> Report | None:
    """Says why a program is left as it was, of each weight; a program that trains none, nothing."""
    if not sums_over_replicas(captured.view.graph_def):
        return None
    return _left_whole(title, captured, refusal)


def _left_whole(title: str, captured: Captured, refusal: Refusal) -> Report:
    """Says of each weight why a function is left as it was."""
    view = captured.view
    # A variable that several programs use has a key in each.
    keys = {
        id(captured.variables.get(ref.key, ref)): ref.key
        for ref in reversed(view.variables.values())
        if ref.trainable
    }
    return nothing_sharded(title, refusal, tuple(reversed(keys.values())))


# Why a branch updates nothing by itself, and the function around it may.
_OF_WHOEVER_TAKES_IT = (refusals.Updates.INSIDE_OF_CALL, refusals.Updates.NOT_SUMMED)


def _without_reported(
    graph: Any,
    captured: Captured,
    analysis: Analysis,
    nested: Sequence[Report],
    reported: Reported,
) -> Analysis:
    """Leaves out updates that are done inside of functions whose own reports name them.

    And what a branch that sums nothing does itself or calls: who takes it knows what was summed.
    """
    called = called_graphs(graph, captured)
    to_be_taken = function_graph.is_branch(graph) and not analysis.num_replicas
    names = {v.name for r in nested for v in r.variables}
    names |= {v.name for r in nested for v in r.left_alone}
    kept = [
        refused
        for refused in analysis.refused
        if refused.variable not in names
        and not (to_be_taken and refused.refusal.kind in _OF_WHOEVER_TAKES_IT)
        and not _is_reported(captured, refused.variable, reported, called)
    ]
    return dataclasses.replace(analysis, refused=tuple(kept))


def _is_reported(
    captured: Captured, key: str, reported: Reported, called: Callable[[str], list[Any]]
) -> bool:
    """Whether nothing but functions that report on a variable write it.

    What the graph itself updates as well, from a gradient of its own, it is to report.
    """
    view, variable = captured.view, captured.variables.get(key)
    handles = [name for name, ref in view.variables.items() if ref.key == key and not ref.replica]
    writers = [write.op for handle in handles for write in values_of(view, handle).writes]
    return bool(writers) and all(
        is_call(op.type)
        and any(id(variable) in reported.get(inner, ()) for inner in called(op.name))
        for op in writers
    )
