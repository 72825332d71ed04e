"""Emits one replica's copy of an update's body, on that replica's shard.

Slots are read and written in place, through the handles of their shards, in the order of the
original accesses. A weight has no shard of its own between steps: its slice is cut from the whole
value, carried from write to write as a plain value, and handed back to be gathered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.scratch import scratch_variable
from tf_wu_shard.layout import AnyLayout, Layout, of_size
from tf_wu_shard.rules.operation import LocalOp, OwnRows
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES, is_fused_update, is_plain_write
from tf_wu_shard.weight_update.analysis.types import BodyOp, Operand, OperandKind, WeightUpdate
from tf_wu_shard.weight_update.rewrite.access_order import AccessOrder
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.grappler_order import gradients_in_chains, named_like
from tf_wu_shard.weight_update.rewrite.names import in_place_of
from tf_wu_shard.weight_update.rewrite.own_shard import OwnShard
from tf_wu_shard.weight_update.rewrite.sums import part
from tf_wu_shard.weight_update.rewrite.weight_versions import (
    WeightVersion,
    idle_reads,
    open_version,
    weight_versions,
)


class BodyEmitter:
    """Emits the body of one update for one replica.

    Attributes:
        update: The update.
        versions: For each weight, what it is whenever it has to be whole. This and what follows is
            so once every op of the body is emitted.
        emitted: For each op of the old body on this replica that goes away, the ops that took its
            place; for a write of a weight none yet (see `replace_writes`).
        stand_ins: Those of these that do on the shard just what the old op did, with its name: each
            takes it in the end, see `names`.
        parts: For each sum over several shards, by its old op, what the replica's shard adds to it.
        entering: For each matrix function, the shards that enter it. What it yields is read under
            its old name, until the shards of that are known.
    """

    def __init__(
        self,
        emission: Emission,
        update: WeightUpdate,
        layouts: Sequence[AnyLayout],
        replica: int,
        gradients: Mapping[int, Sequence[Value]],
    ) -> None:
        """Prepares to emit.

        Args:
            emission: Where to emit.
            update: The update.
            layouts: How its weights are cut; then, for each other size, how tensors of it are.
            replica: Whose copy to emit.
            gradients: For each reduction key, per replica the shard of the sum.
        """
        self._view = emission.view
        self._dialect = emission.dialect
        self._shard_handles = emission.handles
        self.update = update
        self.layout = layouts[0]
        self._layouts = tuple(layouts)
        self._replica = replica
        self._shard = emission.dialect.shard_of(replica)
        self._gradients = gradients
        self._at = emission.at(update.devices[replica], update.name, "update")
        self._variables = {v.key: v for v in update.variables}
        self._locals: list[Value | None] = []
        self._order = AccessOrder()
        # The shards of weights that were read or written, as they are now.
        self._weights: dict[str, Value] = {}
        # XLA goes by no names, and entries of a table are added in an order of their own.
        of_vectors = isinstance(self.layout, Layout)
        self._in_chains = gradients_in_chains(update.body) if of_vectors else frozenset()
        self._named: dict[tuple[str, int], Value] = {}
        self.versions = {w.key: weight_versions(w) for w in update.weights}
        self.emitted: dict[str, list[str]] = {}
        self.stand_ins: dict[str, str] = {}
        self.parts: dict[str, Value] = {}
        self.entering: dict[int, tuple[Value, ...]] = {}
        self._drop_idle_reads()

    def layout_of(self, size: int) -> AnyLayout:
        """How whatever has so many elements is cut."""
        return of_size(self._layouts, size)

    def emit_op(self, op: BodyOp) -> None:
        """Emits the next op of the body."""
        local: Value | None = None
        if op.function is not None:
            self._enter(op, op.function)
        elif op.type == READ:
            local = self._read(op)
        elif is_plain_write(op.type):
            self._write(op)
        elif is_fused_update(op.type):
            self._apply(op)
        elif op.sum is not None:
            self._add(op)
        else:
            local = self._compute(op)
        self._locals.append(local)

    def _enter(self, op: BodyOp, function: int) -> None:
        """An op of a matrix function: at the first one, everything that enters is there."""
        if function not in self.entering:
            inputs = self.update.functions[function].inputs
            self.entering[function] = tuple(self._local(op, value.operand) for value in inputs)

    def _drop_idle_reads(self) -> None:
        """Takes out reads of whole weights that nobody looks at.

        One between two writes would be waited for by the one assignment in their place, and would
        wait for it. What waits for one after such an assignment waits for that.
        """
        own = {op.ops[self._replica] for op in self.update.body}
        for weight in self.update.weights:
            if weight.key not in self._shard_handles:
                found = idle_reads(self._view, weight.handles[self._replica], own)
                self.emitted |= {name: [] for names in found.values() for name in names}
                for version in self.versions[weight.key]:
                    version.idle_reads += found.get(version.after, [])

    def _read(self, op: BodyOp) -> Value:
        key, name = op.variable, op.ops[self._replica]
        if key in self._shard_handles:
            local = self._in_place_of(name).like(
                self._view.ops[name].node,
                [self._shard_handles[key][self._replica]],
                "",
                controls=self._before(key, name, writes=False),
            )
            # What puts a weight together for others that look at this read stands for it as well.
            self._order.after(key, name if key in self.versions else local.op, writes=False)
            return self._stands_for(name, local)
        if key in self._weights:
            if any(0 < len(v.writes) < v.num_writes for v in self.versions[key]):
                # Between these writes only the body looks, and they become one: a write that
                # waited for this read would wait for itself.
                self.emitted[name] = []
            return self._weights[key]
        # The old read of the whole weight stays as it is; the shard is cut from what it read.
        at = self._in_place_of(name).within("own_shard")
        return self._slice(at, Value(name), self._variables[key].shape)

    def _write(self, op: BodyOp) -> None:
        key, name = op.variable, op.ops[self._replica]
        operand = self._local(op, op.operands[1])
        if key in self._shard_handles:
            local = self._in_place_of(name).like(
                self._view.ops[name].node,
                [self._shard_handles[key][self._replica], operand],
                "",
                controls=self._before(key, name, writes=True),
            )
            self._order.after(key, local.op, writes=True)
            self._stands_for(name, local)
            return
        arithmetic = WRITES[op.type].on_values
        if arithmetic is not None:
            terms = [self._present(key, name), operand]
            operand = self._in_place_of(name).in_order(arithmetic, terms)
        self._replace_weight(key, name, operand)

    def _apply(self, op: BodyOp) -> None:
        """A fused update: on the slots' shards and on a variable that lives for this step."""
        name = op.ops[self._replica]
        fused = WRITES[op.type]
        keys = [operand.variable for operand in op.operands[: fused.num_handles]]
        controls = set(self._external_controls(name))
        handles: list[Value] = []
        for key in keys:
            if key in self._shard_handles:
                handles.append(self._shard_handles[key][self._replica])
                controls |= set(self._before(key, name, writes=True))
            else:
                handle, filled = self._scratch(key, name)
                handles.append(handle)
                controls.add(filled)
        scalars = [self._local(op, operand) for operand in op.operands[fused.num_handles :]]
        node = self._view.ops[name].node
        at = self._in_place_of(name)
        applied = at.like(node, [*handles, *scalars], "", controls=controls)
        for key, handle in zip(keys, handles, strict=True):
            if key in self._shard_handles:
                self._order.after(key, applied.op, writes=True)
                continue
            self._replace_weight(key, name, self._read_of(at, key, handle, [applied.op]))
        if name not in self.emitted:
            self._stands_for(name, applied)

    def _scratch(self, key: str, name: str) -> tuple[Value, str]:
        """A variable that holds the weight's shard during this step; see `scratch_variable`."""
        present = self._present(key, name)
        own = self._variables[key]
        shape = self.layout_of(math.prod(own.shape)).shard_shape(self._shard)
        return scratch_variable(self._in_place_of(name), present, shape)

    def _add(self, op: BodyOp) -> None:
        """A sum over several shards: what this one adds to it."""
        name = op.ops[self._replica]
        shard = self._local(op, op.operands[0])
        assert op.sum is not None, f"{op.type} is no sum"
        layout = self.layout_of(math.prod(op.sum.of))
        own = OwnShard(self._in_place_of(name), self._dialect, layout, self._shard)
        self.parts[name] = part(own, op, shard)
        self.emitted[name] = [self.parts[name].op]

    def _compute(self, op: BodyOp) -> Value | None:
        name = op.ops[self._replica]
        own = op.local or LocalOp(tuple(range(len(op.operands))))
        operands = [self._given(op, given) for given in own.operands]
        in_chain = op.local is None or op.local.in_order
        for number, operand in enumerate(op.operands if in_chain else ()):
            if operand.kind is OperandKind.GRADIENT and operand.index in self._in_chains:
                operands[number] = self._named_as_before(
                    self._view.ops[name].inputs[number], operand
                )
        at, controls = self._in_place_of(name), self._external_controls(name)
        if own.type:
            add = at.in_order if own.in_order else at.op
            local = add(own.type, operands, "", controls=controls)
        else:
            local = at.like(self._view.ops[name].node, operands, "", controls=controls)
        return self._stands_for(name, local)

    def _given(self, op: BodyOp, given: int | OwnRows) -> Value:
        """What a local op is given: an operand, or a constant."""
        if isinstance(given, int):
            return self._local(op, op.operands[given])
        return self._at.constant(given.of(self.layout.shard_shape(self._shard)[0]), given.dtype)

    def _local(self, op: BodyOp, operand: Operand) -> Value:
        """An operand as it is on this replica's shard."""
        if operand.kind is OperandKind.BODY:
            source = self.update.body[operand.index]
            if source.function is not None:
                return Value(source.ops[self._replica], operand.output)
            local = self._locals[operand.index]
            assert local is not None, f"{op.type} uses the result of a write"
            return local
        if operand.kind is OperandKind.GRADIENT:
            return self._gradients[operand.index][self._replica]
        value = operand.values[self._replica]
        if operand.kind is OperandKind.SCALAR:
            if operand.shape == () or is_fused_update(op.type):
                return value
            # A one-element tensor of rank 2 would turn the shard into a matrix.
            return self._in_place_of(value.op).reshape(value, (), "scalar")
        if operand.kind is OperandKind.BROADCAST:
            own_shape = self._view.shape(value)
            assert own_shape is not None, f"{value} has no static shape"
            layout = self.layout_of(math.prod(operand.shape))
            # Grappler adds what is smaller last; of the shards' size, it comes last by this name.
            own = OwnShard(self._at.within("broadcast"), self._dialect, layout, self._shard)
            return own.broadcast(value, own_shape, operand.shape)
        return self._slice(self._in_place_of(value.op).within("slice"), value, operand.shape)

    def _stands_for(self, name: str, local: Value) -> Value:
        """Notes that the op that computes `local` does on the shard what an old op did."""
        self.emitted[name] = [local.op]
        self.stand_ins[local.op] = name
        return local

    def _named_as_before(self, old: Value, gradient: Operand) -> Value:
        """The shard of a gradient by a name like that of the old value."""
        source = self._view.source(old)
        key = (source.name, gradient.index)
        if key not in self._named:
            local = self._gradients[gradient.index][self._replica]
            shape = self.layout.shard_shape(self._shard)
            self._named[key] = named_like(self._view, source, local, shape, self._in_place_of)
        return self._named[key]

    def _in_place_of(self, name: str) -> Emitter:
        """Where to emit what takes the place of an old op, or a part of it."""
        return self._at._replace(scope=in_place_of(name, self._at.scope))

    def _slice(self, at: Emitter, value: Value, shape: tuple[int, ...]) -> Value:
        """The own shard of a value of `shape` that is whole."""
        layout = self.layout_of(math.prod(shape))
        return self._dialect.slice_own(at, value, layout, self._shard)

    def _read_of(self, at: Emitter, key: str, handle: Value, controls: Sequence[str]) -> Value:
        """A read of a handle of a variable."""
        dtype = self._variables[key].dtype
        return at.op(READ, [handle], READ, controls=controls, dtype=dtype)

    def _present(self, key: str, write: str) -> Value:
        """The weight's shard before the old op `write`."""
        if key not in self._weights:
            variable = self._variables[key]
            handle = Value(variable.handles[self._replica])
            at = self._in_place_of(write)
            whole = self._read_of(at, key, handle, self._external_controls(write))
            self._weights[key] = self._slice(at.within("own_shard"), whole, variable.shape)
            open_version(self.versions[key]).controls.append(whole.op)
        return self._weights[key]

    def _replace_weight(self, key: str, write: str, value: Value) -> None:
        self._weights[key] = value
        version = self._note_write(key, write)
        version.shard = value

    def _note_write(self, key: str, write: str) -> WeightVersion:
        version = open_version(self.versions[key])
        version.controls += self._external_controls(write)
        version.writes.append(write)
        self.emitted.setdefault(write, [])
        return version

    def replace_writes(self, version: WeightVersion, assignment: str) -> None:
        """Lets what waited for the last write of a version wait for an assignment in its place.

        Nothing takes the place of earlier writes, whose values only the body looks at: what waited
        for one may stand before the assignment.

        Args:
            version: What an emitted weight is.
            assignment: The op that assigns it.
        """
        for old in (version.writes[-1], *version.idle_reads):
            self.emitted[old].append(assignment)

    def _external_controls(self, name: str) -> list[str]:
        """What an old op waited for: outside ops as they are, body ops as what replaced them."""
        controls = []
        for control in self._view.ops[name].controls:
            controls += self.emitted.get(control, [control])
        return controls

    def _before(self, key: str, name: str, *, writes: bool) -> list[str]:
        """What an access of a slot's shard must wait for."""
        return self._external_controls(name) + self._order.before(key, writes=writes)
