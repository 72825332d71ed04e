"""What remains of the old graph once some of its ops are replaced.

Keeps every op that still has a purpose, its edges redirected to the replacements. An op that was
only there for what went away (packing gradients, splitting their sum) goes with it; an op that is
merely dropped hands its control edges on, so that nothing runs earlier than it did.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tf_wu_shard.colocation import rename_wishes, wishes
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.nodes import copy_of
from tf_wu_shard.graph.op import Op, Value, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.step.gradients import result_names
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.rewrite.names import LEFT_WHOLE, scope_of

_INPUTS = frozenset({"Placeholder", "_Arg", "Arg"})


class _Needs(NamedTuple):
    """What a new node takes, and the names of what it waits for."""

    values: list[Value]
    waits: list[str]

    @classmethod
    def of(cls, node: Any, value_of: Callable[[str], Value]) -> _Needs:
        """Reads a NodeDef."""
        found = cls([], [])
        for text in node.input:
            if text[0] == "^":
                found.waits.append(text[1:])
            else:
                found.values.append(value_of(text))
        return found


class GraphEdit:
    """Collects replacements, then what is left.

    Attributes:
        names: Every name of a reduced gradient.
    """

    def __init__(self, view: GraphView, plan: ShardingPlan, builder: GraphBuilder) -> None:
        """Starts with nothing replaced.

        Args:
            view: The old graph.
            plan: What is to be done: the carriers of the reductions of sharded updates go.
            builder: Where a replacement that needs another shape is emitted.
        """
        self._view = view
        self._plan = plan
        self._builder = builder
        self._replaced_ops: dict[str, Sequence[str]] = {}
        self._replaced_values: dict[Value, Value] = {}
        self.names = result_names(view, plan.reductions)
        self._control_memo: dict[str, tuple[str, ...]] = {}
        self._kept: frozenset[str] = frozenset()
        self._inputs = frozenset(op.name for op in view.of_types(*_INPUTS))

    def replace_ops(self, replacements: Mapping[str, Sequence[str]]) -> None:
        """Takes ops out of the old graph.

        Args:
            replacements: For each op that goes, the ops that took its place. Where there are none,
                what waited for it waits for what it waited for and took.
        """
        for name, instead in replacements.items():
            self._replaced_ops[name] = (*self._replaced_ops.get(name, ()), *instead)

    @property
    def taken_places(self) -> dict[str, list[str]]:
        """For each op that took the place of old ones, by name, the names of these."""
        found: dict[str, list[str]] = {}
        for old, instead in self._replaced_ops.items():
            for name in instead:
                found.setdefault(name, []).append(old)
        return found

    def replace_results(self, reduction: GradientReduction, sums: Sequence[Value]) -> None:
        """Lets everything that reads the results of a reduction read other values.

        Args:
            reduction: The reduction.
            sums: Per replica, a vector with the same elements.
        """
        if reduction.size is None:
            # A part of a pack, a vector too; what gives it another shape goes on doing so.
            self._replaced_values.update(zip(reduction.results, sums, strict=True))
            return
        devices = self._plan.variables[0].update.devices
        for replica, total in enumerate(sums):
            for value in self.names.of(reduction.key, replica):
                shape = self._view.shape(value)
                assert shape is not None, f"a reduced gradient has no static shape: {value}"
                at = self._builder.at(devices[replica], scope_of(LEFT_WHOLE, "all_reduce/shape"))
                self._replaced_values[value] = at.reshape(total, shape, "")

    def replace_value(self, old: Value, new: Value) -> None:
        """Lets everything that reads a value read another."""
        self._replaced_values[old] = new

    def collect(self) -> tuple[list[Any], tuple[str, ...], tuple[Value, ...]]:
        """Everything of the old graph that still has a purpose.

        Returns:
            The remaining nodes, the names of the ops that must run, and the returned values.
        """
        self._bypass_identities()
        self._kept = self._still_live()
        nodes = [self._node(op) for op in self._view if op.name in self._kept]
        controls = [n for c in self._view.control_outputs for n in self._waited_for(c)]
        outputs = tuple(self._replaced_values.get(v, v) for v in self._view.outputs)
        self._lead_new_nodes()
        return nodes, tuple(dict.fromkeys(controls)), outputs

    def _bypass_identities(self) -> None:
        """Frees whatever an IdentityN passes on from the values beside it that go."""
        for op in self._view:
            if not op.passes_each_on or not self._passes_on_what_goes(op):
                continue
            for i, value in enumerate(op.inputs):
                self._replaced_values.setdefault(Value(op.name, i), value)

    def _passes_on_what_goes(self, op: Op) -> bool:
        """Whether an op has a reduced gradient or a value that goes among its operands."""
        return any(value in self.names or self._goes(value) for value in op.inputs)

    def _goes(self, value: Value) -> bool:
        """Whether what computes a value goes, whatever name it has here; nobody who stays reads it.

        A reduced gradient is one of these only where no other value takes its place.
        """
        while True:
            value = self.value_now(value)
            if value.op in self._replaced_ops:
                return True
            op = self._view.ops.get(value.op)
            if op is None or op.passes_each_on or family_of(op.type) is not Family.RELABEL:
                return False
            value = op.inputs[0]

    def value_now(self, value: Value) -> Value:
        """What is read in the place of an old value."""
        while value in self._replaced_values:
            value = self._replaced_values[value]
        return value

    @functools.cached_property
    def _first_changed(self) -> int:
        """The position of the first old op that goes, or of which a value goes.

        Those before it need nothing new: most of a step, as gradients are computed first.
        """
        ops = self._view.ops
        changed = self._gone.union(value.op for value in self._replaced_values)
        return min((ops[name].position for name in changed if name in ops), default=len(ops))

    def _still_live(self) -> frozenset[str]:
        """Old ops that an output, an effect or a new op still needs, and all inputs."""
        view, only_waits = self._view, functools.cache(self._only_waits)
        gone, first = self._gone, self._first_changed
        stack = [self.value_now(v).op for v in view.outputs]
        stack += [c for c in view.control_outputs if c not in gone]
        stack += view.effects - gone
        stack += self._inputs
        for edges in self._new.values():
            stack += [self.value_now(value).op for value in edges.values]
            stack += [n for n in edges.waits if n not in view.ops or not only_waits(n)]

        def needed(name: str) -> Iterable[str]:
            if name in gone or name not in view.ops:
                return ()
            op, inputs = view.ops[name], view.ops[name].inputs
            if op.position < first:
                return op.sources
            if not self._replaced_values.keys().isdisjoint(inputs):
                inputs = tuple(map(self.value_now, inputs))
            # A stateless op named only by a control edge is dropped; what it waited for is not.
            waits = [c for c in op.controls if not only_waits(c)]
            return [value.op for value in inputs] + waits

        return frozenset(name for name in reachable(stack, needed) if name in view.ops) - gone

    def _only_waits(self, name: str) -> bool:
        """Whether an op does nothing but pass on a reduced gradient, or a value that goes."""
        op = self._view.ops[name]
        if op.passes_each_on:
            return self._passes_on_what_goes(op)
        return Value(name) in self.names or self._goes(Value(name))

    @functools.cached_property
    def _gone(self) -> frozenset[str]:
        """Old ops that were replaced, and the carriers of all reductions that were."""
        carriers = (c for v in self._plan.variables for r in v.reductions for c in r.carriers)
        return frozenset((*self._replaced_ops, *carriers))

    def _node(self, op: Op) -> Any:
        """An old op's node with its edges redirected to the replacements."""
        if (
            self._replaced_values.keys().isdisjoint(op.inputs)
            and self._kept.issuperset(op.controls)
            and self._inputs.isdisjoint(op.controls)
            and self._kept.issuperset(wishes(op.node))
        ):
            return op.node
        inputs = [str(self.value_now(v)) for v in op.inputs]
        controls = [n for c in op.controls for n in self._waited_for(c)]
        inputs += [f"^{c}" for c in dict.fromkeys(controls)]
        node = copy_of(op.node)
        # The device is named as well.
        rename_wishes(node, lambda name: name if name in self._kept else None)
        del node.input[:]
        node.input.extend(inputs)
        return node

    @functools.cached_property
    def _new(self) -> dict[str, _Needs]:
        """What the builder's nodes take and wait for, by their names, once all are there."""
        value_of = functools.cache(parse_value)  # Most values are taken several times.
        return {node.name: _Needs.of(node, value_of) for node in self._builder.nodes}

    def _waited_for(self, name: str) -> tuple[str, ...]:
        """The ops to wait for in the place of an old op."""
        if name in self._inputs:
            return ()
        if name in self._kept or name not in self._view.ops:
            return (name,)
        instead = self._replaced_ops.get(name)
        if instead:
            return tuple(instead)
        if name not in self._control_memo:
            self._control_memo[name] = ()
            op = self._view.ops[name]
            sources = (*op.controls, *(self.value_now(v).op for v in op.inputs))
            found = [n for s in sources for n in self._waited_for(s)]
            self._control_memo[name] = tuple(dict.fromkeys(found))
        return self._control_memo[name]

    def _lead_new_nodes(self) -> None:
        """Redirects edges of new nodes away from old values and ops that were replaced."""
        for node, (values, waits) in zip(self._builder.nodes, self._new.values(), strict=True):
            now = [self.value_now(value) for value in values]
            instead = dict.fromkeys(n for wait in waits for n in self._waited_for(wait))
            if now != values or [*instead] != waits:
                del node.input[:]
                node.input.extend([*map(str, now), *(f"^{name}" for name in instead)])
