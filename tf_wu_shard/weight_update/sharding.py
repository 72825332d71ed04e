"""What the pass does, or would do, to the updates of one graph: planned, rewritten, reported.

A live function, a branch of one, a GraphDef and a step that only might run on some replicas all go
this way; they differ in where the graph comes from and in what is done with the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.report.report import Report
from tf_wu_shard.report.summary import summarize
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.plan.verify import verify_plan
from tf_wu_shard.weight_update.rewrite.result import RewriteResult, ShardInput
from tf_wu_shard.weight_update.rewrite.rewriter import rewrite
from tf_wu_shard.weight_update.rewrite.verify import verify

_ALL_AT_ONCE = (
    "replicas outnumber the cores, and all of them compute gradients at once: that they may begin"
    " one after the other is not proved"
)


@dataclasses.dataclass(frozen=True)
class Sharding:
    """The updates of one graph in shards.

    Attributes:
        dialect: How its replicas exchange data.
        plan: What is done to it.
        result: What was made of it; None where nothing is sharded, or nothing was rewritten yet.
    """

    dialect: Dialect
    plan: ShardingPlan
    result: RewriteResult | None = None

    def rewritten(self, view: GraphView) -> Sharding:
        """The same with the graph rewritten, if anything of it is sharded, and verified.

        Args:
            view: The graph.

        Raises:
            WuShardError: It cannot be rewritten so, or the result is not what was planned.
        """
        if not self.plan.variables:
            return self
        result = rewrite(view, self.plan, self.dialect)
        verify(view, self.plan, result)
        return dataclasses.replace(self, result=result)

    @property
    def shard_inputs(self) -> Sequence[ShardInput]:
        """The inputs that the rewrite added."""
        return () if self.result is None else self.result.shard_inputs

    @property
    def concerns(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.plan.variables or self.plan.refusals or self.plan.left_alone)

    def report(self, function: str) -> Report:
        """What to say of it, without times.

        Args:
            function: Name of the function.
        """
        place = self.dialect.replicas.place
        if self.result is None:
            return summarize(function, self.plan, {}, place)
        report = summarize(function, self.plan, self.result.emitted, place, self.result.left_open)
        notes = report.notes
        if self.plan.at_a_time > self.result.at_a_time:
            notes += (_ALL_AT_ONCE,)
        return dataclasses.replace(report, at_a_time=self.result.at_a_time, notes=notes)


def plan_sharding(
    analysis: Analysis, dialect: Dialect, options: ShardingOptions, constraints: StorageConstraints
) -> Sharding:
    """Plans what is done to the updates of a graph.

    Args:
        analysis: What was found in it.
        dialect: How its replicas exchange data.
        options: How to shard.
        constraints: What the storage of its variables asks.

    Raises:
        WuShardError: If the plan is not what it has to be, by a mistake of the planner.
    """
    plan = make_plan(analysis, options, dialect.preferences, constraints)
    verify_plan(plan)
    return Sharding(dialect, plan)
