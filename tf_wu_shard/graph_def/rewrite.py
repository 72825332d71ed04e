"""Rewrites TensorFlow 1's graphs: a GraphDef in, one with sharded updates out.

It composes the stages that the traced path has too. There is no live variable here: a variable in
shards becomes a VarHandleOp for each replica, and what the host does to the whole one is redirected
to them. Weights live in shards like their slots: on a TPU a variable that all replicas share enters
the program as a value, and only the first replica's write comes back; what each has of its own
enters as a handle and stays on its device (TensorFlow's distributed_tpu_rewrite_pass.cc).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.colocation import rename_wishes
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dtypes import dtype_name
from tf_wu_shard.errors import GraphDefError, OptionError
from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.nodes import copy_of, rewired
from tf_wu_shard.graph.op import parse_value
from tf_wu_shard.graph_def.device_assignment import DeviceAssignment, assigned_devices
from tf_wu_shard.graph_def.host_accesses import (
    HostAccesses,
    Shards,
    must_stay_whole,
    uses_by_variable,
)
from tf_wu_shard.graph_def.program import program_of
from tf_wu_shard.graph_def.program_view import ProgramView, imported, program_view
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.layout import TileLayout
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.report.published import nothing_sharded, publish
from tf_wu_shard.report.report import Report
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import is_fused_update
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.function_slots import cannot_read_shards
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.rewrite.names import scope_of
from tf_wu_shard.weight_update.rewrite.result import RewriteResult
from tf_wu_shard.weight_update.sharding import plan_sharding

_ASSIGN = "AssignVariableOp"


@dataclasses.dataclass(frozen=True)
class VariableInShards:
    """What became of a variable: a slot, or a weight.

    Attributes:
        name: Its name, which checkpoints go on having; its own VarHandleOp is gone.
        shape: Its shape.
        dtype: Its element type.
        layout: How it is cut, such as "rows 64x128/4".
        shard_shape: The shape of each shard.
        shards: For each replica the VarHandleOp of its shard.
        devices: For each replica the device of its shard; "" where TensorFlow is to choose.
        value: Name of a tensor that is the whole value, to be fetched.
        writers: Names of the ops that write the whole value: its initializer, what restores it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    shard_shape: tuple[int, int]
    shards: tuple[str, ...]
    devices: tuple[str, ...]
    value: str
    writers: tuple[str, ...]


class RewrittenGraphDef(NamedTuple):
    """What `rewrite_graph_def` made.

    Attributes:
        graph_def: The GraphDef to import; the one that was given where nothing was sharded.
        report: What was sharded, and why the rest was not.
        variables: Every variable that lives in shards now.
    """

    graph_def: Any
    report: Report
    variables: tuple[VariableInShards, ...]


def rewrite_graph_def(
    graph_def: Any,
    options: ShardingOptions | None = None,
    *,
    device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
    devices: Sequence[str] | None = None,
    name: str = "graph_def",
) -> RewrittenGraphDef:
    """Shards the weight updates of the TPU program in a graph of TensorFlow 1.

    For graphs that `tf.compat.v1.tpu.replicate` or `batch_parallel` made, gradients summed by
    `CrossShardOptimizer`. All ops outside of the TPU program keep their names, so what a program
    fetches, feeds or runs is still there. Initializers and savers that are part of the graph work
    on whole values; those made after the rewrite do not find the variables that went into shards.

    Args:
        graph_def: What `tf.Graph.as_graph_def()` returns, complete. It is not changed.
        options: How to shard; None for the defaults.
        device_assignment: Where the replicas sit, if the program was not made with it.
        devices: For each replica the device of its TPU core, where its shards are to live.
        name: What the report calls the graph.

    Returns:
        The new GraphDef, the report, and the variables in shards.

    Raises:
        GraphDefError: What was given is no GraphDef, or TensorFlow does not take it.
        OptionError: An option does not fit the graph.
        NothingShardedError: With on_refusal="raise", when nothing could be sharded.
    """
    start = time.perf_counter()
    if not isinstance(graph_def, tf.compat.v1.GraphDef):
        raise GraphDefError(
            f"rewrite_graph_def takes a GraphDef, not {_shown(graph_def)}; of a tf.Graph take"
            " graph.as_graph_def()"
        )
    options = ShardingOptions() if options is None else options
    if not isinstance(options, ShardingOptions):
        raise OptionError(f"options must be a ShardingOptions, not {_shown(options)}")
    # A protocol buffer that is asked for an attribute it does not have gets one.
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    program = program_of(copy)
    if program.refusal is not None:
        imported(graph_def)
        report = nothing_sharded(name, program.refusal)
        publish(report, options=options)
        return RewrittenGraphDef(graph_def, report, ())
    assignment = assigned_devices(program, device_assignment, devices)
    rewritten = _rewritten(copy, program_view(copy, program), assignment, options, name)
    spent = (time.perf_counter() - start) * 1e3
    report = dataclasses.replace(rewritten.report, pass_ms=spent, trace_ms=spent)
    publish(report, options=options)
    new = rewritten.graph_def if rewritten.variables else graph_def
    return RewrittenGraphDef(new, report, rewritten.variables)


def _shown(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"


def _rewritten(
    graph_def: Any,
    seen: ProgramView,
    assignment: DeviceAssignment,
    options: ShardingOptions,
    name: str,
) -> RewrittenGraphDef:
    dialect = TpuCluster(seen.program.name, assignment.torus)
    analysis = analyze(seen.view, dialect)
    uses = uses_by_variable(graph_def, seen.program)
    constraints = _constraints(seen, analysis, must_stay_whole(graph_def, uses))
    sharding = plan_sharding(analysis, dialect, options, constraints).rewritten(seen.view)
    report = sharding.report(name)
    if sharding.result is None:
        if not report.left_alone:
            report = nothing_sharded(name, refusals.Topology.NO_GRADIENT_SUMMED.at())
        return RewrittenGraphDef(graph_def, report, ())
    report = dataclasses.replace(report, notes=(*report.notes, *assignment.notes))
    assembly = _Assembly(graph_def, seen, sharding.plan, sharding.result, assignment)
    new, variables = assembly.assembled(uses)
    imported(new)
    return RewrittenGraphDef(new, report, variables)


def _constraints(
    seen: ProgramView, analysis: Analysis, outside: Mapping[str, Refusal]
) -> StorageConstraints:
    """Which variables cannot live in shards.

    A weight that stays whole may still be updated in shards, but not by a fused update: that wants
    the handle of a shard, and no variable can be made inside of a TPU program.
    """
    found = StorageConstraints()
    for update in analysis.updates:
        fused = any(is_fused_update(op.type) for op in update.body)
        for updated in update.variables:
            refusal = outside.get(updated.key)
            refusal = refusal or cannot_read_shards(seen.view, updated.handles[0])
            if refusal is not None:
                found = found.keeping(updated.key, refusal, update=updated.is_slot or fused)
    return found


class _Assembly:
    """Puts the new program back among the host's ops."""

    def __init__(
        self,
        graph_def: Any,
        seen: ProgramView,
        plan: ShardingPlan,
        result: RewriteResult,
        assignment: DeviceAssignment,
    ) -> None:
        self._old = graph_def
        self._seen = seen
        self._result = result
        self._inside = {node.name for node in seen.program.nodes}
        self._made = {node.name: node for node in result.nodes}
        self._outside = HostAccesses([*seen.nodes, *self._made])
        self._shards = {
            slot.variable: self._shards_of(slot.variable, slot.layout, slot.dtype, assignment)
            for slot in plan.in_shards
            if isinstance(slot.layout, TileLayout)
        }

    def _shards_of(
        self, key: str, layout: TileLayout, dtype: int, assignment: DeviceAssignment
    ) -> Shards:
        names = [scope_of(key, f"replica_{replica}") for replica in range(layout.num_shards)]
        handles = tuple(map(self._outside.unique, names))
        return Shards(key, dtype, layout, handles, assignment.devices)

    def assembled(
        self, uses: Mapping[str, Iterable[Any]]
    ) -> tuple[Any, tuple[VariableInShards, ...]]:
        """The new GraphDef, and its variables in shards.

        Args:
            uses: For each variable the host's uses of it.
        """
        described = []
        for key, shards in self._shards.items():
            users = list(uses[key])
            self._outside.make_handles(shards, self._seen.nodes[key])
            for user in users:
                self._outside.lead(shards, user)
            described.append(self._described(shards, users))
        host = [n for n in self._old.node if n.name not in self._inside | self._outside.replaced]
        nodes = [self._led(node) for node in (*host, *self._outside.nodes)]
        new = graph_def_of([*nodes, *self._program()], self._old)
        for node in new.node:
            for key in [k for k, value in node.attr.items() if not value.WhichOneof("value")]:
                del node.attr[key]
        return new, tuple(described)

    def _described(self, shards: Shards, users: Sequence[Any]) -> VariableInShards:
        reads = [user.name for user in users if user.op == READ]
        read = reads[0] if reads else self._outside.add_read(shards)
        return VariableInShards(
            name=shards.key,
            shape=shards.layout.shape,
            dtype=dtype_name(shards.dtype),
            layout=str(shards.layout),
            shard_shape=shards.layout.shard_shape(0),
            shards=shards.handles,
            devices=shards.devices,
            value=f"{read}:0",
            writers=tuple(user.name for user in users if user.op == _ASSIGN),
        )

    def _program(self) -> list[Any]:
        """The program's nodes; what is packed for a strategy enters one by one here."""
        entries = {added.handle: added for added in self._result.shard_inputs}
        placeholders = {added.placeholder for added in self._result.shard_inputs}
        nodes = []
        for node in self._result.nodes:
            if node.name in placeholders or (
                node.name in self._seen.nodes and node.name not in self._inside
            ):
                continue
            if node.name in entries:
                handles = self._shards[entries[node.name].slot].handles
                node.input[:] = handles
                node.attr["N"].i = len(handles)
                node.attr["is_packed"].b = False
            nodes.append(node)
        return nodes

    def _led(self, node: Any) -> Any:
        """A node of the host, its edges redirected to what took the place of the program's ops."""
        controls = [c for text in node.input if text[0] == "^" for c in self._control(text)]
        data = [self._data(text) for text in node.input if text[0] != "^"]
        new = copy_of(rewired(node, [*data, *dict.fromkeys(controls)]))
        rename_wishes(new, lambda name: None if self._is_lost(name) else name)
        return new

    def _data(self, text: str) -> str:
        if text.partition(":")[0] not in self._inside:
            return text
        number = self._seen.view.outputs.index(parse_value(text))
        return str(self._result.outputs[number])

    def _control(self, text: str) -> tuple[str, ...]:
        name = text[1:]
        if name in self._shards:
            return ()
        if name not in self._inside or name in self._made:
            return (text,)
        # The program is one op to the host: what waits for a part waits for all of it.
        return tuple(f"^{op}" for op in self._result.control_outputs)

    def _is_lost(self, name: str) -> bool:
        return name in self._shards or (name in self._inside and name not in self._made)
