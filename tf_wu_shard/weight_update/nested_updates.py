"""Shares the updates that stand in branches and loop bodies of a TPU program.

Each is analysed, planned and rewritten in its own graph, by the same stages as a step. A variable
that moves into shards there keeps its argument, which from then on is the handle of the shards;
the enclosing program hands that over instead. So no function changes its signature, and those that
only pass the variable on stay as they are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.nesting import Nested, nested_programs
from tf_wu_shard.report.report import Report
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.storage import captured_slots
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.graph_rebuilding import NewBody, make_function, traced_name
from tf_wu_shard.weight_update import function_slots
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.nested_calls import Place, agreeing, as_arguments, by_place, calling
from tf_wu_shard.weight_update.nested_plans import NestedPlans
from tf_wu_shard.weight_update.nested_reads import redirect_reads
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.report_lines import with_line
from tf_wu_shard.weight_update.rewrite.names import scope_of
from tf_wu_shard.weight_update.rewrite.result import ShardInput
from tf_wu_shard.weight_update.sharding import Sharding, plan_sharding


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
    if all(sharding.result is None for sharding in work.shardings.values()):
        return NestedUpdates(captured, reports=tuple(work.reports()))
    slots: dict[str, Any] = {}
    for sharding in work.shardings.values():
        slots |= function_slots.planned_slots(captured, sharding, slots)
    made = {name: work.made(one, slots) for name, one in by_place(nested).items()}
    return _enclosing(captured, nested, made, work, slots, dialect_in(cluster.name))


class _Work:
    """The branches and bodies of one program, and what is made of each, by number."""

    def __init__(
        self,
        graph: Any,
        captured: Captured,
        nested: tuple[Nested, ...],
        dialect: Dialect,
        options: ShardingOptions,
    ) -> None:
        self._graph = graph
        self._dialect = dialect
        self._found = NestedPlans(captured, nested, dialect)

        def planned(analysis: Analysis, constraints: StorageConstraints) -> Sharding:
            return plan_sharding(analysis, dialect, options, constraints)

        self._found.plan(
            planned,
            lambda analysis, one: function_slots.storage_constraints(
                graph, analysis, one, functools.partial(planned, analysis)
            ),
            captured_slots.slots_in_shards(captured),
        )
        self.shardings = {
            number: sharding.rewritten(self._found.programs[number].captured.view)
            for number, sharding in self._found.shardings.items()
        }

    def reports(self) -> Iterable[Report]:
        """What to say of each."""
        for number, one in enumerate(self._found.programs):
            assert isinstance(one.graph, TracedGraph), "what a traced program calls was traced"
            sharding = self.shardings[number]
            if sharding.plan.variables or sharding.plan.left_alone:
                title = f"{function_graph.title(self._graph)}/{traced_name(one.name)}"
                yield with_line(sharding.report(title), one.graph.graph)

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
        sharding = self.shardings[self._found.number(one)]
        return sharding.result is not None or any(map(self._shares, one.inner))

    def made(self, one: Nested, slots: Mapping[str, Any]) -> Any:
        """The function that takes a branch's or body's place."""
        before = one.captured.view
        sharding = self.shardings[self._found.number(one)]
        result, inputs = sharding.result, sharding.shard_inputs
        own = {slot.variable for slot in sharding.plan.in_shards}
        elsewhere = {k: s.layout for k, s in slots.items() if k not in own}
        view = result.view(before) if result is not None else before
        writers = {o.op for o in one.inner}
        redirected = redirect_reads(view, elsewhere, writers, self._dialect)
        final = redirected or result
        nodes = final.nodes if final is not None else [op.node for op in before]
        handles = {a.placeholder: one.handle(a.slot) for a in inputs}
        inner = {place: self.made(o, slots) for place, o in by_place(one.inner).items()}
        nodes = calling(as_arguments(nodes, handles), inner)
        builder = GraphBuilder([node.name for node in nodes])
        nodes = agreeing(nodes, self.disagreements(one.inner), builder, self._dialect)
        assert isinstance(one.graph, TracedGraph), "what a traced program calls was traced"
        packed = {
            name: slots[ref.key].packed_handle
            for name, ref in before.variables.items()
            if ref.key in slots
        }
        body = NewBody(
            [*nodes, *builder.nodes],
            [f"{handles.get(v.op, v.op)}:{v.index}" for v in (final or before).outputs],
            (final or before).control_outputs,
            [*one.captured.functions.values(), *inner.values()],
        )
        return make_function(one.graph.graph, body, one.arguments, packed)


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
    builder = GraphBuilder(view.ops, view.dtype)
    inputs: list[ShardInput] = []
    instead: dict[str, str] = {}
    writers: dict[str, list[str]] = {key: [] for key in slots}
    hosts = {one.op for one in nested}
    for name, ref in view.variables.items():
        users = [op.name for op, _ in view.consumers(Value(name)) if op.name in hosts]
        if ref.key in slots and users:
            writers[ref.key] += users
            at = builder.at("", scope_of(ref.key, "shard_0"))
            placeholder, handle = dialect.shard_handle(at)
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
    functions = {function.name.decode(): function for function in made.values()}
    votes = {node.name for node in builder.nodes if "T" in node.attr or "DstT" in node.attr}
    after = captured.with_nodes(
        [*nodes, *builder.nodes],
        captured.functions | functions,
        shape_of=lambda value: () if value.op in votes else None,
    )
    return NestedUpdates(
        after,
        tuple(inputs),
        slots,
        {key: tuple(dict.fromkeys(found)) for key, found in writers.items()},
        tuple(work.reports()),
    )
