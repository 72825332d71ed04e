"""Redirects every other access of a sharded slot to its shards.

A function that reads or writes a slot outside the sharded update is traced as if the slot were
whole. Here a read becomes a gather of all shards, and each replica's write becomes a write of its
own shard; any other op that takes the handle (a fused update, a scatter) works on a variable that
holds the gathered value for this step, and the own shard is written from that. The components were
equal before and are written alike, so the shards, taken together, hold what every component would
have held.

Order: a component's accesses are ordered by its own control edges. On shards, a read on one replica
also sees what the others write, so the accesses are put in step: a read waits for all replicas'
writes before it, and a write for all replicas' reads before it. A call whose callee was redirected
to the shards when it was traced takes the shards' own handles, which no control edge puts in order
with the slot's; such a call counts as an access on every replica, at its place in the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.dtypes import BOOL
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.nodes import copy_of
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds import plain_ops
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.scratch import scratch_variable
from tf_wu_shard.layout import Layout
from tf_wu_shard.rules.variables import READ, WRITES, Access
from tf_wu_shard.step.accesses import accesses
from tf_wu_shard.tensorflow_private.python_calls import CALL
from tf_wu_shard.weight_update.rewrite.callees import calls_on_shards
from tf_wu_shard.weight_update.rewrite.names import scope_of
from tf_wu_shard.weight_update.rewrite.result import ShardInput
from tf_wu_shard.weight_update.rewrite.write_epochs import in_write_epochs


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A graph that touches sharded slots through their shards alone.

    Attributes:
        nodes: The NodeDefs of the new graph.
        shard_inputs: Placeholders to bind to the shards.
        control_outputs: Names of the ops that must run.
        outputs: The values that the graph returns, in the old order.
    """

    nodes: tuple[Any, ...]
    shard_inputs: tuple[ShardInput, ...]
    control_outputs: tuple[str, ...]
    outputs: tuple[Value, ...]


def lower_slot_accesses(
    view: GraphView,
    layouts: Mapping[str, Layout],
    shards: Mapping[str, str],
    traced: GraphView,
    dialects: Mapping[str, Dialect],
    calls: Mapping[str, str],
) -> Lowered | None:
    """Replaces accesses of sharded slots by accesses of their shards.

    Args:
        view: The graph.
        layouts: For each slot that lives in shards, by its key in the view, how it is cut.
        shards: For each placeholder of the view that is a shard's own handle, the slot's key.
        traced: The graph before any rewrite, which has all ops that access a slot, in the order in
            which they were traced.
        dialects: For each of these slots how its replicas communicate.
        calls: For slots that this graph cannot gather, the tokens of Python code that does; see
            `python_calls`.

    Returns:
        The new graph, or None where no such slot is touched.

    Raises:
        StorageError: If an op does something to a slot that the shards cannot express.
    """
    touched: dict[str, dict[int, list[Op]]] = {}
    whole: set[str] = set()
    passed_on: set[str] = set()
    for handle, ref in view.variables.items():
        if ref.key in layouts:
            found = accesses(view, handle)
            if any(a.access is not Access.PASSED_ON for a in found):
                whole.add(ref.key)
            if found:
                touched.setdefault(ref.key, {})[ref.replica] = [a.op for a in found]
                passed_on.update(a.op.name for a in found if a.access is Access.PASSED_ON)
    touched = {key: ops for key, ops in touched.items() if key in whole}
    if not touched:
        return None
    redirected = calls_on_shards(view, shards)
    passed_on.update(name for on_slot in redirected.values() for name in on_slot)
    lowering = _Lowering(view, layouts, frozenset(passed_on), dialects, calls)
    for key, per_replica in touched.items():
        on_slot = redirected.get(key, {})
        for replica in range(len(dialects[key].replicas.local)) if on_slot else ():
            once = dict.fromkeys([*(op.name for op in per_replica.get(replica, ())), *on_slot])
            in_order = sorted(once, key=lambda name: traced.ops[name].position)
            per_replica[replica] = [view.ops[name] for name in in_order]
        lowering.lower(key, per_replica, {name for name, writes in on_slot.items() if writes})
    return lowering.finish()


class _Lowering:
    def __init__(
        self,
        view: GraphView,
        layouts: Mapping[str, Layout],
        passed_on: frozenset[str],
        dialects: Mapping[str, Dialect],
        calls: Mapping[str, str],
    ) -> None:
        self._dialects = dialects
        self._calls = calls
        self._view = view
        self._layouts = layouts
        self._passed_on = passed_on
        self._waits: dict[str, list[str]] = {}
        self._builder = GraphBuilder(view.ops, view.dtype)
        self._inputs: list[ShardInput] = []
        self._values: dict[Value, Value] = {}
        self._instead: dict[str, str] = {}
        self._scratch: dict[tuple[str, Value], tuple[Value, str]] = {}
        # What the replicas' ops of one round work on, and what writes their shards after it.
        self._filled: list[str] = []
        self._written: list[Any] = []
        self._must_run: list[str] = []

    def lower(self, key: str, per_replica: Mapping[int, list[Op]], writing: set[str]) -> None:
        """Replaces all accesses of one slot.

        Args:
            key: The slot.
            per_replica: The ops that access it on each replica, in the order of the trace.
            writing: Names of those calls among them that write the shards.
        """
        handles = self._shard_handles(key)
        steps = in_write_epochs(key, per_replica, len(handles), writing)
        before: list[str] = []
        for reads, writes in steps:
            seen = [self._access(key, handles, r, op, before) for r, op in reads]
            if writes:
                waits = [*before, *seen]
                before = [self._access(key, handles, r, op, waits) for r, op in writes]
                self._end_round()

    def _end_round(self) -> None:
        """Lets no replica write its shard before all have gathered what they work on."""
        for node in self._written:
            node.input.extend(f"^{name}" for name in self._filled)
        self._written, self._filled = [], []

    def finish(self) -> Lowered:
        """The new graph."""
        nodes: list[Any] = []
        for op in self._view:
            if op.name not in self._instead:
                node = copy_of(op.node)
                waits = set(self._waits.get(op.name, ())).difference(op.controls)
                node.input.extend(f"^{name}" for name in sorted(waits))
                self._move_to_scratch(op, node)
                nodes.append(node)
        nodes += self._builder.nodes
        for node in nodes:
            self._lead(node)
        return Lowered(
            tuple(nodes),
            tuple(self._inputs),
            (*(self._instead.get(c, c) for c in self._view.control_outputs), *self._must_run),
            tuple(self._values.get(v, v) for v in self._view.outputs),
        )

    def _lead(self, node: tf.compat.v1.NodeDef) -> None:
        redirected = []
        for text in node.input:
            if text.startswith("^"):
                redirected.append(f"^{self._instead.get(text[1:], text[1:])}")
            else:
                name, _, index = text.partition(":")
                value = Value(name, int(index or 0))
                redirected.append(str(self._values.get(value, value)))
        if redirected != list(node.input):
            del node.input[:]
            node.input.extend(redirected)

    def _shard_handles(self, key: str) -> list[Value]:
        handles = []
        for replica in range(len(self._dialects[key].replicas.local)):
            handle = self._builder.at("", "").handle_input(scope_of(key, f"shard_{replica}"))
            self._inputs.append(ShardInput(handle.op, key, replica, handle.op))
            handles.append(handle)
        return handles

    def _access(
        self, key: str, handles: list[Value], replica: int, op: Op, waits: list[str]
    ) -> str:
        """Emits one access; returns the op to wait for in its place."""
        if op.name in self._passed_on:
            # The called functions were redirected to the shards when they were traced.
            self._waits.setdefault(op.name, []).extend(waits)
            return op.name
        if op.type == READ:
            return self._gather(key, handles, replica, op, waits)
        if op.type in WRITES:
            return self._write_own(key, handles[replica], replica, op, waits)
        if op.type == "VarIsInitializedOp":
            true = self._builder.constant(True, device=op.device, dtype=BOOL)
            self._values[Value(op.name)] = true
            self._instead[op.name] = true.op
            return true.op
        if not is_call(op.type):
            return self._on_scratch(key, handles, replica, op, waits)
        raise StorageError(
            f"the function's op {op.name!r} ({op.type}) hands slot {key!r}, which lives in shards,"
            " to a function that does more than read it; read the slot's value and hand over that,"
            " or trace this function before the slot is sharded"
        )

    def _on_scratch(
        self, key: str, handles: list[Value], replica: int, op: Op, waits: list[str]
    ) -> str:
        """Lets an op work on the gathered value, then writes the replica's shard from it."""
        layout = self._layouts[key]
        own = next(v for v in op.inputs if self._key_of(v) == key)
        dtype = self._view.variables[own.op].dtype
        at = self._builder.at(op.device, scope_of(key, "scratch"))
        whole = self._gathered(key, handles, replica, dtype, [*op.controls, *waits])
        handle, filled = scratch_variable(at, whole, layout.shape)
        self._scratch[op.name, own] = (handle, filled)
        changed = at.op(READ, [handle], "changed", controls=[op.name], dtype=dtype)
        shard = self._dialects[key].shard_of(replica)
        part = plain_ops.own_part(at, at.flat(changed, "flat"), layout, shard, "own_shard")
        written = at.op("AssignVariableOp", [handles[replica], part], "write")
        self._must_run.append(written.op)
        self._filled.append(whole.op)
        self._written.append(self._builder.nodes[-1])
        return written.op

    def _key_of(self, value: Value) -> str | None:
        ref = self._view.variables.get(value.op)
        return ref.key if ref is not None else None

    def _move_to_scratch(self, op: Op, node: tf.compat.v1.NodeDef) -> None:
        """Gives an op the handles of the variables it is to work on."""
        for slot, value in enumerate(op.inputs):
            if (op.name, value) in self._scratch:
                handle, filled = self._scratch[op.name, value]
                node.input[slot] = str(handle)
                node.input.append(f"^{filled}")

    def _gather(
        self, key: str, handles: list[Value], replica: int, op: Op, waits: list[str]
    ) -> str:
        dtype = op.attribute("dtype").type
        whole = self._gathered(key, handles, replica, dtype, [*op.controls, *waits])
        self._values[Value(op.name)] = whole
        self._instead[op.name] = whole.op
        return whole.op

    def _gathered(
        self, key: str, handles: list[Value], replica: int, dtype: int, waits: list[str]
    ) -> Value:
        """What a replica gets of the whole value of a slot, read from its shards."""
        at = self._builder.at("", scope_of(key, "read"))
        if key in self._calls:
            attributes = {"token": self._calls[key], "Tin": [], "Tout": [dtype]}
            called = at.op(CALL, [], "call", controls=waits, **attributes)
            return at.reshape(called, self._layouts[key].shape, "whole")
        # With no device named, each is read where it lives.
        shards = [at.op(READ, [h], "shard", controls=waits, dtype=dtype) for h in handles]
        gathered = at.within("all_gather")
        layout = self._layouts[key]
        return self._dialects[key].all_gather(gathered, [shards], [layout])[0][replica]

    def _write_own(self, key: str, handle: Value, replica: int, op: Op, waits: list[str]) -> str:
        at, layout = self._builder.at(op.device, scope_of(key, "write")), self._layouts[key]
        vector, shard = at.flat(op.inputs[1], "flat"), self._dialects[key].shard_of(replica)
        own = plain_ops.own_part(at, vector, layout, shard, "own_shard")
        written = at.like(op.node, [handle, own], op.type, controls=[*op.controls, *waits])
        self._instead[op.name] = written.op
        return written.op
