"""Makes one call of what an update computes on a device, for XLA to compile: GraphDef to GraphDef.

Op by op, each op of an update reads its operands from memory and writes its result there; compiled,
a body is about one pass over memory. Of the ops that were emitted for a bucket, those that XLA can
compile are taken out of the graph, device by device. Ops that stay (a sum over a shard, a power)
may stand between them, so a bucket has as many calls on a device as such ops come one after the
other, plus one; see `_levels`.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from tf_wu_shard.dtypes import INT32
from tf_wu_shard.graph.builder import GraphBuilder, result_types
from tf_wu_shard.graph.nodes import inputs_now, rewired
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.ordering import ordered_ops
from tf_wu_shard.program.compiled_calls import MUST_COMPILE
from tf_wu_shard.weight_update.rewrite.compilable import Group, is_worth_it
from tf_wu_shard.weight_update.rewrite.compiled_body import CompiledBody, compiled_body, shape_of
from tf_wu_shard.weight_update.rewrite.names import scope_of
from tf_wu_shard.weight_update.rewrite.result import Region


@dataclasses.dataclass(frozen=True)
class Outlined:
    """A graph that calls functions which XLA compiles.

    Attributes:
        nodes: Its NodeDefs.
        outputs: The values that it returns.
        control_outputs: Names of the ops that must run.
        bodies: The functions that it calls, each once.
    """

    nodes: tuple[Any, ...]
    outputs: tuple[Value, ...]
    control_outputs: tuple[str, ...]
    bodies: tuple[CompiledBody, ...] = ()


def outlined(
    nodes: Sequence[Any],
    outputs: Sequence[Value],
    control_outputs: Sequence[str],
    regions: Sequence[Region],
) -> Outlined:
    """Takes the bodies of updates out of a graph.

    Args:
        nodes: Its NodeDefs; they stay as they are.
        outputs: The values that it returns.
        control_outputs: Names of the ops that must run.
        regions: What of it is to be compiled, see `compilable`.

    Returns:
        The graph; the same one where no region has anything to compile.
    """
    if not regions:
        return Outlined((*nodes,), (*outputs,), (*control_outputs,))
    ops = ordered_ops(nodes)
    of = {name: number for number, region in enumerate(regions) for name in region.ops}
    groups = {op.name: Group(of[op.name], op.device) for op in ops if op.name in of}
    clusters = _clusters(ops, groups, regions)
    return _Outlining(ops, regions).run(clusters, outputs, control_outputs)


def _clusters(
    ops: Sequence[Op], groups: Mapping[str, Group], regions: Sequence[Region]
) -> dict[tuple[Group, int], list[Op]]:
    """The ops of each group and level; those that are no faster compiled are left out."""
    levels = _levels(ops, groups)
    clusters: dict[tuple[Group, int], list[Op]] = collections.defaultdict(list)
    for op in ops:
        if op.name in groups:
            clusters[groups[op.name], levels.get(op.name, 0)].append(op)
    return {
        place: own for place, own in clusters.items() if is_worth_it(own, regions[place[0].region])
    }


def _levels(ops: Iterable[Op], groups: Mapping[str, Group]) -> dict[str, int]:
    """How many times at most the way to an op leaves a group; ops at 0 are left out.

    Of a group, the ops of one level can run at once: a way between two of them that leaves the
    group would lead to a higher level.
    """
    levels: dict[str, int] = {}
    for op in ops:
        own = groups.get(op.name)
        level = 0
        for source in op.sources:
            group = groups.get(source)
            left = group is not None and group != own
            level = max(level, levels.get(source, 0) + left)
        if level:
            levels[op.name] = level
    return levels


class _Outlining:
    """One graph whose clusters of ops become calls."""

    def __init__(self, ops: Sequence[Op], regions: Sequence[Region]) -> None:
        self._ops = ops
        self._by_name = {op.name: op for op in ops}
        self._regions = regions
        self._builder = GraphBuilder(
            self._by_name, lambda v: result_types(self._by_name[v.op].node)[v.index]
        )
        self._zeros: dict[str, Value] = {}
        self._bodies: dict[str, CompiledBody] = {}
        # By the shape of the ops, and whether it is exact: their function, and which of the outside
        # values it takes.
        self._made: dict[tuple[Hashable, bool], tuple[CompiledBody, list[int]]] = {}
        # What a value and an op of a cluster are now.
        self._values: dict[Value, Value] = {}
        self._calls: dict[str, str] = {}

    def run(
        self,
        clusters: Mapping[tuple[Group, int], Sequence[Op]],
        outputs: Sequence[Value],
        control_outputs: Sequence[str],
    ) -> Outlined:
        """Makes the graph."""
        inside = {op.name: place for place, own in clusters.items() for op in own}
        read: dict[tuple[Group, int], dict[Value, None]] = collections.defaultdict(dict)
        for op in self._ops:
            for value in op.inputs:
                place = inside.get(value.op)
                if place is not None and inside.get(op.name) != place:
                    read[place][value] = None
        for value in outputs:
            if value.op in inside:
                read[inside[value.op]][value] = None
        for place, own in clusters.items():
            self._call(place[0], own, list(read[place]))
        kept = [
            self._redirected(op.node) if self._takes_of_calls(op) else op.node
            for op in self._ops
            if op.name not in inside
        ]
        added = [self._redirected(node) for node in self._builder.nodes]
        return Outlined(
            (*kept, *added),
            tuple(self._values.get(value, value) for value in outputs),
            tuple(dict.fromkeys(self._calls.get(name, name) for name in control_outputs)),
            tuple(self._bodies.values()),
        )

    def _call(self, group: Group, ops: Sequence[Op], results: Sequence[Value]) -> None:
        """Makes the call that takes the place of some ops."""
        region = self._regions[group.region]
        body, arguments = self._body(ops, results, exact=region.exact)
        inputs = list(arguments)
        if body.takes_zero:
            inputs.insert(0, self._zero(region, group.device))
        own = {op.name for op in ops}
        controls = {control for op in ops for control in op.controls if control not in own}
        call = self._builder.op(
            "StatefulPartitionedCall",
            inputs,
            name=scope_of(region.name, "update/compiled"),
            device=group.device,
            controls=controls,
            attributes={"Tout": [self._builder.dtype(v) for v in results]},
        )
        attributes = self._builder.nodes[-1].attr
        attributes["f"].func.name = body.name
        # What makes the runtime hand the call to XLA, and Grappler leave it as it is.
        attributes[MUST_COMPILE].b = True
        self._values |= {value: Value(call.op, i) for i, value in enumerate(results)}
        self._calls |= dict.fromkeys(own, call.op)

    def _body(
        self, ops: Sequence[Op], results: Sequence[Value], *, exact: bool
    ) -> tuple[CompiledBody, Sequence[Value]]:
        """The function of some ops, and the values that it takes; of ops like others, theirs."""
        shape, outside = shape_of(ops, results, self._by_name)
        key = shape, exact
        if key not in self._made:
            body, taken = compiled_body(ops, results, self._by_name, exact=exact)
            body = self._bodies.setdefault(body.name, body)
            self._made[key] = body, [outside.index(value) for value in taken]
        body, places = self._made[key]
        return body, [outside[place] for place in places]

    def _zero(self, region: Region, device: str) -> Value:
        """A zero that is known only when the step runs: whether a variable lacks a value."""
        if device not in self._zeros:
            at = self._builder.at(device, scope_of(region.name, "update/zero"))
            has = at.op("VarIsInitializedOp", [Value(region.variables[device])], "has_value")
            lacks = at.op("LogicalNot", [has], "has_none")
            self._zeros[device] = at.op("Cast", [lacks], "", DstT=INT32)
        return self._zeros[device]

    def _takes_of_calls(self, op: Op) -> bool:
        return any(v in self._values for v in op.inputs) or any(
            c in self._calls for c in op.controls
        )

    def _redirected(self, node: Any) -> Any:
        """A NodeDef that takes, and waits for, calls in the place of what they took over."""
        return rewired(node, inputs_now(node.input, self._values, self._calls))
