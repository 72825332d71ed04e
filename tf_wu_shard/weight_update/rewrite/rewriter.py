"""Builds the sharded graph from the old one and the plan: GraphDef in, new GraphDef out.

Pure: the old graph is never touched, so giving up at any point leaves it as it was.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.nodes import rename_ops, with_inputs
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect, Gathered
from tf_wu_shard.grounds.plain_ops import divided
from tf_wu_shard.layout import OwnerLayout, RowLayout
from tf_wu_shard.step.gradient_shapes import with_ensured
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.plan.compiling import AS_ASKED_FOR
from tf_wu_shard.weight_update.plan.types import ShardingPlan, VariablePlan, bucket_name
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter
from tf_wu_shard.weight_update.rewrite.compilable import compilable
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.graph_edit import GraphEdit
from tf_wu_shard.weight_update.rewrite.names import LEFT_WHOLE, STAGGERED
from tf_wu_shard.weight_update.rewrite.operands import Operands
from tf_wu_shard.weight_update.rewrite.owner_emitter import OwnerEmitter
from tf_wu_shard.weight_update.rewrite.regions import emit, region_of, with_what_is_left
from tf_wu_shard.weight_update.rewrite.result import Region, RewriteResult, ShardInput
from tf_wu_shard.weight_update.rewrite.row_updates import emit_rows, exchange_rows
from tf_wu_shard.weight_update.rewrite.schedule import CollectiveSchedule
from tf_wu_shard.weight_update.rewrite.stack_emitter import StackEmitter, Wholes
from tf_wu_shard.weight_update.rewrite.staggering import before_gradients, stagger
from tf_wu_shard.weight_update.rewrite.sums import Parts, add_up, parts_of
from tf_wu_shard.weight_update.rewrite.weight_gathers import WeightGathers


def rewrite(view: GraphView, plan: ShardingPlan, dialect: Dialect) -> RewriteResult:
    """Shards the updates that the plan names.

    Args:
        view: The graph.
        plan: What to do.
        dialect: How to communicate in it.

    Returns:
        The new graph.

    Raises:
        WuShardError: If the plan was made for another graph, or the result would not hold
            together.
    """
    if plan.fingerprint != view.fingerprint:
        raise WuShardError(
            f"the plan was made for graph {plan.fingerprint}, this is {view.fingerprint};"
            " plan again"
        )
    return _Rewriter(view, plan, dialect).run()


class _Rewriter:
    def __init__(self, view: GraphView, plan: ShardingPlan, dialect: Dialect) -> None:
        ensured = (r.ensured for r in plan.reductions if r.ensured is not None)
        view = with_ensured(view, tuple(ensured))
        self._view = view
        self._plan = plan
        self._dialect = dialect
        self._devices = plan.variables[0].update.devices
        self._schedule = CollectiveSchedule(view, plan)
        self._builder = GraphBuilder(view.ops, view.dtype)
        self._edit = GraphEdit(view, plan, self._builder)
        self._emission = Emission(view, self._builder, dialect, self._edit)
        self._operands = Operands(self._emission)
        self._gathers = WeightGathers(self._emission, self._schedule)
        self._shard_inputs: list[ShardInput] = []
        self._emitted: collections.Counter[str] = collections.Counter()
        self._assigns: dict[str, tuple[tuple[str, ...], ...]] = {}
        self._parts: list[Parts] = []
        self._regions: list[Region] = []
        # For each update, by its name, the emitters of its copies.
        self._emitters: dict[str, Sequence[BodyEmitter]] = {}
        # For an old op what does the same on a shard, and gets its name; of several the first.
        self._stand_ins: dict[str, str] = {}

    def run(self) -> RewriteResult:
        for bucket in self._plan.buckets:
            for variable in bucket:
                self._add_shard_inputs(variable)
            if isinstance(bucket[0].layout, OwnerLayout):
                self._update_whole(bucket)
                continue
            self._update(bucket)
        self._compute_stacks()
        self._add_up()
        self._sum_whole()
        self._emitted += collections.Counter(all_gather=self._gathers.count)
        nodes, control_outputs, outputs = self._edit.collect()
        at_a_time = self._stagger(nodes)
        old = self._view.ops
        # Those that stay as they were name no new op.
        changed = [n for n in nodes if n.name not in old or n is not old[n.name].node]
        nodes += self._builder.nodes
        self._dialect.adopt(self._builder.nodes)
        names = {new: old for old, new in self._stand_ins.items()}
        rename_ops((*changed, *self._builder.nodes), names)
        named = (_named(region, names) for region in self._regions)
        emitted = with_what_is_left(named, nodes, self._plan)
        regions, left_open = compilable(nodes, emitted)
        return RewriteResult(
            nodes=tuple(nodes),
            source=self._view.graph_def,
            shard_inputs=tuple(self._shard_inputs),
            control_outputs=tuple(names.get(name, name) for name in control_outputs),
            outputs=tuple(Value(names.get(v.op, v.op), v.index) for v in outputs),
            emitted=dict(self._emitted),
            assigns=self._assigns | self._gathers.assigns,
            taken_places=self._edit.taken_places,
            regions=regions,
            left_open=left_open,
            at_a_time=at_a_time,
        )

    def _stagger(self, nodes: list[Any]) -> int:
        """Has replicas compute their gradients as many at a time as the plan says.

        Args:
            nodes: The NodeDefs that are left of the old graph; those that are to wait are replaced.

        Returns:
            That number; 0 where it is not proved that this blocks nobody.
        """
        at_a_time = self._plan.at_a_time
        if not at_a_time:
            return 0
        added = tuple(self._builder.nodes)
        reductions = [r for v in self._plan.variables for r in v.reductions]
        gradients = [
            [self._edit.value_now(r.operands[copy]) for r in reductions]
            for copy in range(len(self._devices))
        ]
        asked = before_gradients(self._view, gradients, (*nodes, *added))
        found = stagger(asked, gradients, self._devices, added)
        place_of = {node.name: place for place, node in enumerate(nodes)}
        if found is None or any(
            not own.keys() <= place_of.keys() for own in found.begins[at_a_time:]
        ):
            return 0
        done: list[str] = []
        for copy in range(at_a_time, len(self._devices)):
            before = copy - at_a_time
            at = self._emission.at(self._devices[before], STAGGERED, "summed")
            waits = [*found.sums[before], *done[-1:]]
            done.append(at.op("NoOp", [], f"{before}", controls=waits).op)
            batch = dict.fromkeys(v for taken in found.begins[copy].values() for v in taken)
            held = {str(v): str(self._held_back(v, copy, done[-1])) for v in batch}
            for name in found.begins[copy]:
                nodes[place_of[name]] = with_inputs(nodes[place_of[name]], held)
        return at_a_time

    def _held_back(self, batch: Value, copy: int, until: str) -> Value:
        """A part of a replica's batch, once an op has run.

        What takes it does not wait itself: Grappler does not fuse what does, and what it does not
        fuse rounds otherwise. The name sorts as the batch's own does in Grappler.
        """
        at = Emitter(self._builder, self._devices[copy], f"{batch.op}/wu_shard_batch_{batch.index}")
        return at.kept(batch, f"{copy}", controls=[until])

    def _add_shard_inputs(self, variable: VariablePlan) -> None:
        whole = {v.key: v.handles for v in variable.update.variables}
        copies: Sequence[int] = range(len(self._devices))
        if isinstance(variable.layout, OwnerLayout):
            copies = (variable.layout.owner,)
        for slot in variable.in_shards:
            handles = self._emission.handles[slot.variable] = []
            for copy in copies:
                at = self._emission.at("", slot.variable, f"shard_{copy}")
                placeholder, handle = self._dialect.shard_handle(at)
                handles.append(handle)
                self._shard_inputs.append(
                    ShardInput(placeholder.op, slot.variable, copy, handle.op)
                )
                # What works on the variable part by part works on the shard.
                self._edit.replace_value(Value(whole[slot.variable][copy]), handle)

    def _update_whole(self, bucket: Sequence[VariablePlan]) -> None:
        """Leaves updates to their owners."""
        for variable in bucket:
            assert isinstance(variable.layout, OwnerLayout), "a bucket of two kinds"
            update, owner = variable.update, variable.layout.owner
            emitter = OwnerEmitter(self._emission, update, owner)
            for reduction in variable.reductions:
                at = self._emission.at(self._devices[owner], update.name, "reduce")
                total = self._emission.uneven.reduce_to(at, self._operands.of(reduction), owner)
                emitter.replace_gradient(reduction.key, divided(at, total, reduction.divisor))
                self._emitted["reduce"] += 1
            self._assigns |= emitter.emit()
            self._emitted["broadcast"] += sum(len(w.versions) for w in update.weights)

    def _reduce_scatter(self, bucket: Sequence[VariablePlan]) -> dict[int, list[Value]]:
        """Per reduction of the bucket, per replica, the shard of the reduced gradient."""
        at = self._emission.at("", bucket_name(bucket), "reduce_scatter")
        found: dict[int, list[Value]] = {}
        for together in self._schedule.gradients(bucket):
            operands = [self._operands.of(r) for r, _ in together]
            shards = self._dialect.reduce_scatter(at, operands, [layout for _, layout in together])
            self._emitted["reduce_scatter"] += 1
            for (reduction, _), own in zip(together, shards, strict=True):
                found[reduction.key] = [
                    divided(at.on(device), shard, reduction.divisor)
                    for shard, device in zip(own, self._devices, strict=True)
                ]
        return found

    def _update(self, bucket: Sequence[VariablePlan]) -> None:
        """Emits the bodies of a bucket and gathers its weights."""
        rows = isinstance(bucket[0].layout, RowLayout)
        emitters = self._by_rows(bucket[0]) if rows else self._by_elements(bucket)
        self._gather(bucket, emitters)
        for per_replica in emitters:
            for emitter in per_replica:
                self._edit.replace_ops(emitter.emitted)
                for new, old in emitter.stand_ins.items():
                    self._stand_ins.setdefault(old, new)
            self._parts += parts_of(per_replica[0].update, [e.parts for e in per_replica])

    def _by_elements(self, bucket: Sequence[VariablePlan]) -> list[list[BodyEmitter]]:
        """Emits the bodies of a bucket; for each, its emitters by replica."""
        start = len(self._builder.nodes)
        gradients = self._reduce_scatter(bucket)
        emitters: list[list[BodyEmitter]] = []
        for variable in bucket:
            update, layouts = variable.update, variable.layouts
            per_replica = [
                BodyEmitter(self._emission, update, layouts, replica, gradients)
                for replica in range(len(self._devices))
            ]
            # What a gradient that travels alone is summed with is part of what computes on it.
            first = start if len(bucket) == 1 else len(self._builder.nodes)
            compiled = emit(per_replica, self._view, self._builder)
            if variable.compiled and variable.compiled != AS_ASKED_FOR:
                compiled = frozenset(node.name for node in self._builder.nodes[first:])
            if variable.compiled:
                self._regions.append(
                    region_of(variable, compiled, self._emission.handles, self._devices)
                )
            emitters.append(per_replica)
            self._emitters[update.name] = per_replica
        return emitters

    def _by_rows(self, variable: VariablePlan) -> list[list[BodyEmitter]]:
        """Emits the body of an update that a sparse gradient feeds, which travels alone."""
        assert isinstance(variable.layout, RowLayout), "a bucket of two kinds"
        update, reductions = variable.update, variable.reductions
        emitters, replaced = emit_rows(self._emission, update, variable.layout, reductions)
        self._emitted["gather_entries"] += sum(r.gathered is Gathered.VALUES for r in reductions)
        self._emitted += collections.Counter(gather_rows=sum(op.gathered for op in update.body))
        for old, new in replaced.items():
            self._edit.replace_value(old, new)
        return [[*emitters]]

    def _gather(
        self, bucket: Sequence[VariablePlan], emitters: Sequence[Sequence[BodyEmitter]]
    ) -> None:
        """Puts the weights of a bucket together; those of which only rows change, row by row."""
        members = []
        for variable, own in zip(bucket, emitters, strict=True):
            exchanged = exchange_rows(self._emission, own)
            self._assigns |= exchanged
            count = sum(len(ops[0]) for ops in exchanged.values())
            self._emitted += collections.Counter(exchange_rows=count)
            members += [
                (variable, own, weight)
                for weight in variable.update.weights
                if weight.key in variable.weights and weight.key not in exchanged
            ]
        self._gathers.put_together(members)
        self._gathers.serve_reads(bucket)

    def _compute_stacks(self) -> None:
        """Computes the matrix functions that the bodies have shards of."""
        own = {update: emitters[0] for update, emitters in self._emitters.items()}
        known: Wholes = {}
        for stack in self._plan.stacks:
            self._emitted.update(StackEmitter(self._emission, stack, own, known).emit())

    def _add_up(self) -> None:
        """Gives everything that reads a sum over several shards the sum of all their parts."""
        if self._parts:
            updates = self._plan.updates
            found, count = add_up(self._emission, updates, self._parts, self._schedule)
            self._emitted["all_reduce"] += count
            for old, new in found.items():
                self._edit.replace_value(old, new)

    def _sum_whole(self) -> None:
        """Sums what loses its carrier but is not sharded, by type and how many sums come before."""
        together: dict[tuple[int, ...], list[GradientReduction]] = {}
        for own in self._plan.summed_whole:
            # What has no known size cannot be cut out of a pack, so it travels alone.
            alone = own.key if own.size is None else -1
            when = self._schedule.of_gradient(own)
            together.setdefault((*when, alone, own.dtype, own.divisor), []).append(own)
        for (*_, divisor), reductions in together.items():
            at = self._emission.at("", LEFT_WHOLE, "all_reduce")
            sums = self._dialect.all_reduce(
                at,
                [self._operands.of(r) for r in reductions],
                [(-1 if r.size is None else r.size,) for r in reductions],
            )
            self._emitted["all_reduce"] += 1
            for reduction, values in zip(reductions, sums, strict=True):
                means = [
                    divided(at.on(device), v, divisor)
                    for v, device in zip(values, self._devices, strict=True)
                ]
                self._edit.replace_results(reduction, means)


def _named(region: Region, names: Mapping[str, str]) -> Region:
    """A region with the names that its ops have in the end."""
    return dataclasses.replace(region, ops=frozenset(names.get(name, name) for name in region.ops))
