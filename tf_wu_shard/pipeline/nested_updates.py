"""Shares the updates that stand in branches and loop bodies of a TPU program.

Each is analysed, planned and rewritten in its own graph, by the same stages as a step. A variable
that moves into shards there keeps its argument, which from then on is the handle of the shards;
the enclosing program hands that over instead. So no function changes its signature, and those that
only pass the variable on stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tf_wu_shard.analysis.analyze import analyze
from tf_wu_shard.analysis.types import Analysis
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dialects.base import Dialect
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.capture import Captured
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.tpu_cluster import Cluster
from tf_wu_shard.pipeline.nested_calls import Place, agreeing, as_arguments, by_place, calling
from tf_wu_shard.pipeline.nested_reads import lead_reads
from tf_wu_shard.pipeline.planning import planned
from tf_wu_shard.plan.types import ShardingPlan
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.if_conversion import telling_why
from tf_wu_shard.program.nesting import Nested, everything, nested_programs, uses
from tf_wu_shard.report.summary import Report, summarize
from tf_wu_shard.rewrite.names import scope_of
from tf_wu_shard.rewrite.result import RewriteResult, ShardInput
from tf_wu_shard.rewrite.rewriter import rewrite
from tf_wu_shard.rewrite.verify import verify
from tf_wu_shard.storage import function_slots
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.graph_rebuilding import make_function, traced_name


@dataclasses.dataclass(frozen=True)
class NestedUpdates:
    """What became of the branches and bodies of a program.

    Attributes:
        captured: The enclosing graph, whose ops call what was made.
        inputs: Its new inputs.
        slots: The shards of each variable that is shared inside, by key.
        writers: For each such variable, by key, the ops of the enclosing graph that write it.
        reports: What to say of each branch and body.
    """

    captured: Captured
    inputs: tuple[ShardInput, ...] = ()
    slots: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    writers: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    reports: tuple[Report, ...] = ()


def share_nested_updates(
    graph: Any,
    captured: Captured,
    cluster: Cluster,
    dialect_in: Callable[[str], Dialect],
    options: ShardingOptions,
) -> NestedUpdates:
    """Shares what can be.

    Args:
        graph: The FuncGraph that holds the TPU program.
        captured: Its graph, flattened, and variables.
        cluster: The program.
        dialect_in: How its replicas talk, in the graph of this name; "" for those in it.
        options: What the user asked for.

    Returns:
        What is to be worked on in place of `captured`; nothing is changed yet.
    """
    nested = nested_programs(TracedGraph(graph), captured, cluster.name, cluster.num_replicas)
    if not nested:
        return NestedUpdates(captured)
    work = _Work(graph, captured, nested, dialect_in(""), options)
    work.plan()
    work.rewrite()
    if not any(plan.variables for plan in work.plans.values()):
        return NestedUpdates(captured, reports=tuple(work.reports()))
    slots: dict[str, Any] = {}
    for plan in work.plans.values():
        slots |= function_slots.planned_slots(captured, plan, slots)
    made = {name: work.made(one, slots) for name, one in by_place(nested).items()}
    return _enclosing(captured, nested, made, work, slots, dialect_in(cluster.name))


class _Work:
    """The branches and bodies of one program, and the stages' findings on each, by number."""

    def __init__(
        self,
        graph: Any,
        captured: Captured,
        nested: tuple[Nested, ...],
        dialect: Dialect,
        options: ShardingOptions,
    ) -> None:
        self._graph = graph
        self._captured = captured
        self._dialect = dialect
        self._options = options
        self._programs = [one for one, _ in everything(nested)]
        self._around = [[self._programs.index(o) for o in a] for _, a in everything(nested)]
        self._numbers = {id(one): number for number, one in enumerate(self._programs)}
        # What each graph does to a variable; -1 stands for the enclosing one.
        self._uses = {-1: uses(captured, nested)}
        self._uses |= {n: uses(o.captured, o.inner) for n, o in enumerate(self._programs)}
        self._analyses: list[Analysis] = []
        for one in self._programs:
            found = telling_why(analyze(one.captured.view, dialect), one.captured)
            self._analyses.append(self._without_inner(found, one))
        self.plans: dict[int, ShardingPlan] = {}
        self._results: dict[int, RewriteResult] = {}

    def _without_inner(self, found: Analysis, one: Nested) -> Analysis:
        """Leaves out updates that stand further inside; what is found there tells about them."""
        hosts = {inner.op for inner in one.inner}
        inner = [self._analyses[self._numbers[id(o)]] for o, _ in everything(one.inner)]
        told = {r.variable for analysis in inner for r in analysis.refused}
        told |= {v.key for a in inner for update in a.updates for v in update.variables}
        kept = [r for r in found.refused if r.refusal.where not in hosts or r.variable not in told]
        return dataclasses.replace(found, refused=tuple(kept))

    def plan(self) -> None:
        """Plans each, until no plan takes what another graph uses whole."""
        wholes = [
            function_slots.must_stay_whole(self._graph, analysis, one.captured)
            for one, analysis in zip(self._programs, self._analyses, strict=True)
        ]
        again = True
        while again:
            self.plans = {number: self._plan(number, whole) for number, whole in enumerate(wholes)}
            again = any([self._withdraw(number, wholes[number]) for number in self.plans])

    def _plan(self, number: int, whole: function_slots.Whole) -> ShardingPlan:
        captured = self._programs[number].captured
        return planned(self._analyses[number], captured, self._dialect, self._options, whole)

    def _withdraw(self, number: int, whole: function_slots.Whole) -> bool:
        """Notes what a plan must not take; whether there is any."""
        in_shards = function_slots.slots_in_shards(self._captured)
        found = False
        for variable in self.plans[number].variables:
            for slot in (*variable.slots, *variable.masters):
                is_weight = slot in variable.masters
                reason = self._used_elsewhere(number, slot.variable, is_weight)
                if reason is None:
                    continue
                found = True
                may_be_whole = is_weight and slot.variable not in in_shards
                (whole.weights if may_be_whole else whole.slots)[slot.variable] = reason
        return found

    def _used_elsewhere(self, number: int, key: str, is_weight: bool) -> str | None:
        """Which other graph needs a variable whole that one graph's plan takes, if any."""
        around = {-1, *self._around[number]}
        for other, used in self._uses.items():
            if other == number or key not in used:
                continue
            plan = self.plans.get(other)
            if plan is not None and any(slot.variable == key for slot in plan.in_shards):
                continue
            if is_weight and used[key]:
                continue  # its reads are led onto the shards
            op = self._programs[number].op
            where = "outside of it" if other in around else "in another branch or loop"
            return f"is updated inside of {op} and also used {where}"
        return None

    def rewrite(self) -> None:
        """Rewrites those of which something is shared."""
        for number, plan in self.plans.items():
            if plan.variables:
                view, analysis = self._programs[number].captured.view, self._analyses[number]
                self._results[number] = rewrite(view, analysis, plan, self._dialect)
                verify(view, analysis, plan, self._results[number])

    def reports(self) -> Iterable[Report]:
        """What to say of each."""
        for number, one in enumerate(self._programs):
            analysis, plan = self._analyses[number], self.plans[number]
            if not plan.variables and not plan.left_alone:
                continue
            title = f"{function_graph.title(self._graph)}/{traced_name(one.name)}"
            result = self._results.get(number)
            emitted = result.emitted if result else {}
            yield summarize(title, analysis, plan, emitted, self._dialect.place)

    def disagreements(self, nested: Iterable[Nested]) -> dict[str, bool]:
        """The branch ops before a shared update at which replicas may not agree.

        Returns:
            By the op's name, whether it is the first branch that holds the update. Where both
            branches do, none is to be preferred.
        """
        branches: dict[str, list[Nested]] = {}
        for one in filter(self._shares, nested):
            branches.setdefault(one.op, []).append(one)
        return {
            op: found[0].attribute == "then_branch"
            for op, found in branches.items()
            if len(found) == 1 and not found[0].is_agreed
        }

    def _shares(self, one: Nested) -> bool:
        return self._numbers[id(one)] in self._results or any(map(self._shares, one.inner))

    def made(self, one: Nested, slots: Mapping[str, Any]) -> Any:
        """The function that takes a branch's or body's place."""
        before = one.captured.view
        number = self._numbers[id(one)]
        result = self._results.get(number)
        inputs = result.shard_inputs if result is not None else ()
        own = {slot.variable for slot in self.plans[number].in_shards}
        elsewhere = {k: s.layout for k, s in slots.items() if k not in own}
        view = result.view(before) if result is not None else before
        writers = {o.op for o in one.inner}
        led = lead_reads(view, elsewhere, writers, self._dialect)
        final = led or result
        nodes = final.nodes if final is not None else [op.node for op in before]
        handles = {a.placeholder: one.handle(a.slot) for a in inputs}
        inner = {place: self.made(o, slots) for place, o in by_place(one.inner).items()}
        nodes = calling(as_arguments(nodes, handles), inner)
        builder = GraphBuilder([node.name for node in nodes])
        nodes = agreeing(nodes, self.disagreements(one.inner), builder, self._dialect)
        assert isinstance(one.graph, TracedGraph), "what a traced program calls was traced"
        return make_function(
            one.graph.graph,
            [*nodes, *builder.nodes],
            arguments=one.arguments,
            results=[f"{handles.get(v.op, v.op)}:{v.index}" for v in (final or before).outputs],
            control_outputs=(final or before).control_outputs,
            handles={
                name: slots[ref.key].packed_handle
                for name, ref in before.variables.items()
                if ref.key in slots
            },
            functions=[*one.captured.functions.values(), *inner.values()],
        )


def _enclosing(
    captured: Captured,
    nested: tuple[Nested, ...],
    made: Mapping[Place, Any],
    work: _Work,
    slots: Mapping[str, Any],
    dialect: Dialect,
) -> NestedUpdates:
    """The graph around: its ops call what was made, with the handles of the shards."""
    view = captured.view
    builder = GraphBuilder(view.ops)
    inputs: list[ShardInput] = []
    instead: dict[str, str] = {}
    writers: dict[str, list[str]] = {key: [] for key in slots}
    hosts = {one.op for one in nested}
    for name, ref in view.variables.items():
        users = [op.name for op, _ in view.consumers(Value(name)) if op.name in hosts]
        if ref.key in slots and users:
            writers[ref.key] += users
            placeholder, handle = dialect.shard_handle(builder, scope_of(ref.key, "shard_0"))
            inputs.append(ShardInput(placeholder.op, ref.key, 0, handle.op))
            instead[name] = handle.op
    nodes = []
    nodes_before = calling((op.node for op in view), made)
    nodes_before = agreeing(nodes_before, work.disagreements(nested), builder, dialect)
    dialect.adopt(builder.nodes)
    for node in nodes_before:
        if node.name in hosts:
            for slot, text in enumerate(node.input):
                node.input[slot] = instead.get(text, text)
        nodes.append(node)
    graph_def = type(view.graph_def)(versions=view.graph_def.versions)
    graph_def.node.extend([*nodes, *builder.nodes])
    graph_def.library.CopyFrom(view.graph_def.library)
    functions = {function.name.decode(): function for function in made.values()}
    graph_def.library.function.extend(f.definition for f in functions.values())
    votes = {node.name for node in builder.nodes if "T" in node.attr or "DstT" in node.attr}
    after = view.with_graph(graph_def, dict.fromkeys(votes, ()))
    return NestedUpdates(
        dataclasses.replace(captured, view=after, functions=captured.functions | functions),
        tuple(inputs),
        slots,
        {key: tuple(dict.fromkeys(found)) for key, found in writers.items()},
        tuple(work.reports()),
    )
