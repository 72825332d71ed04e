"""Redirects every access of a variable in shards that stands outside of its sharded update.

A function that reads or writes such a variable (it evaluates, resets, trains with an update that
cannot be shared) is traced as if the variable were whole. Here a read becomes a gather of all
shards, and a write a write of the own shard by each copy of the replicas' program; outside of TPU
programs, on the host, a read or a write of every shard. The components were equal before and are
written alike, so the shards, taken together, hold what every component would have held.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.nodes import Edges, copy_of, edges_of, inputs_now, rewired
from tf_wu_shard.graph.op import Value, decoded
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.tpu import whole_rows
from tf_wu_shard.grounds.tpu.ops import program_of
from tf_wu_shard.layout import AnyLayout, TileLayout
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.tensorflow_private.python_calls import CALL
from tf_wu_shard.weight_update.rewrite.names import scope_of
from tf_wu_shard.weight_update.rewrite.outside_accesses import (
    InShards,
    OutsideAccess,
    outside_accesses,
)
from tf_wu_shard.weight_update.rewrite.result import ShardInput

# How the replicas talk that share a variable, by its key and the TPU program that an op is in.
DialectOf = Callable[[str, str], Dialect]


@dataclasses.dataclass(frozen=True)
class Redirected:
    """A graph that touches variables in shards through their shards alone.

    Attributes:
        nodes: The NodeDefs of the new graph.
        shard_inputs: Placeholders to bind to the shards.
        control_outputs: Names of the ops that must run.
        outputs: The values that the graph returns, in the old order.
        lone_reads: For each op that calls Python code to gather a variable, by name, its key.
    """

    nodes: tuple[Any, ...]
    shard_inputs: tuple[ShardInput, ...]
    control_outputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    lone_reads: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def edges(self) -> tuple[Edges, ...]:
        """The new graph's edges."""
        return edges_of(self.nodes)


def redirected(
    view: GraphView,
    held: InShards,
    dialect_of: DialectOf,
    calls: Mapping[str, str] | None = None,
) -> Redirected | None:
    """Replaces accesses of variables in shards by accesses of their shards.

    Args:
        view: The graph.
        held: What of it lives in shards.
        dialect_of: How the replicas communicate that share a variable.
        calls: For variables that this graph cannot gather, the tokens of Python code that does; see
            `python_calls`.

    Returns:
        The new graph, or None where no such variable is touched.

    Raises:
        StorageError: If something other than reading and writing values is done to one.
    """
    found = outside_accesses(view, held)
    return _Border(view, held.layouts, dialect_of, calls or {}).run(found) if found else None


class _Border:
    def __init__(
        self,
        view: GraphView,
        layouts: Mapping[str, AnyLayout],
        dialect_of: DialectOf,
        calls: Mapping[str, str],
    ) -> None:
        self._view = view
        self._layouts = layouts
        self._dialect_of = dialect_of
        self._calls = calls
        self._nodes: list[Any] = []
        self._inputs: list[ShardInput] = []
        # What stands in the place of reads, by what these gave.
        self._values: dict[Value, Value] = {}
        # Nodes that stand in the place of writes, by name.
        self._writes: dict[str, Any] = {}
        self._lone_reads: dict[str, str] = {}
        # For each call, what it waits for beside its own control edges.
        self._waits: dict[str, list[str]] = {}
        # Of the place that is emitted for: a program, the replicas' copies, or the host.
        self._builder = GraphBuilder((), view.dtype)
        self._handles: dict[str, list[Value]] = {}

    def run(self, found: Sequence[OutsideAccess]) -> Redirected:
        """Does it."""
        by_place: dict[str | None, list[OutsideAccess]] = {}
        for access in found:
            if access.is_read or access.is_write:
                by_place.setdefault(_place(access), []).append(access)
            else:
                self._waits.setdefault(access.op.name, []).extend(access.after)
        for place, own in by_place.items():
            self._serve(place, own)
        return self._finish()

    def _serve(self, place: str | None, found: Sequence[OutsideAccess]) -> None:
        """Serves a program, or the host; no constant serves two of them."""
        taken = (*self._view.ops, *(node.name for node in self._nodes))
        self._builder, self._handles = GraphBuilder(taken, self._view.dtype), {}
        together: dict[Hashable, list[OutsideAccess]] = {}
        for access in found:
            if access.is_read:
                together.setdefault(self._alike(access), []).append(access)
        for reads in together.values():
            self._read_whole(place, reads)
        for access in found:
            if access.is_write and place is None:
                self._write_all(access)
            elif access.is_write:
                self._write_own(access, self._dialect_of(access.key, place or ""))
        if place:
            self._dialect_of(found[0].key, place).adopt(self._builder.nodes)
        self._nodes += self._builder.nodes

    def _alike(self, access: OutsideAccess) -> Hashable:
        """What is alike of reads that one gather serves.

        They wait for the same writes, and for nothing else, so no write waits for what waits for
        it. A read of a copy of its own keeps its control edges, and is served alone.
        """
        layout = self._layouts[access.key]
        if not isinstance(layout, TileLayout):
            return access.op.name
        dtype = access.op.attribute("dtype").type
        return access.after, access.key if access.is_on_host else (dtype, layout.bucket_kind)

    def _read_whole(self, place: str | None, reads: Sequence[OutsideAccess]) -> None:
        """Puts what reads want together, from all shards."""
        first = reads[0]
        keys = [*dict.fromkeys(access.key for access in reads)]
        layouts = [self._layouts[key] for key in keys]
        dtype = first.op.attribute("dtype").type
        own = () if isinstance(layouts[0], TileLayout) else first.op.controls
        waits = (*own, *first.after)
        at = self._builder.at("", scope_of(keys[0] if len(keys) == 1 else "reads", "read"))
        if first.key in self._calls:
            attributes = {"token": self._calls[first.key], "Tin": [], "Tout": [dtype]}
            called = at.op(CALL, [], "call", controls=waits, **attributes)
            self._lone_reads[called.op] = first.key
            whole = [at.reshape(called, layouts[0].shape, "whole")]
        elif place is None:
            shards = self._shards(first.key, None, dtype, waits)
            whole = [whole_rows.joined(at, shards, self._tiles(first.key))]
        else:
            dialect = self._dialect_of(first.key, place)
            of_keys = [self._shards(key, dialect, dtype, waits) for key in keys]
            gathered = dialect.all_gather(at.within("all_gather"), of_keys, layouts)
            whole = [values[first.copy] for values in gathered]
        of_key = dict(zip(keys, whole, strict=True))
        self._values |= {Value(access.op.name): of_key[access.key] for access in reads}

    def _shards(
        self, key: str, dialect: Dialect | None, dtype: int, waits: Iterable[str]
    ) -> list[Value]:
        """What the shards of a variable hold. With no device named, each is read where it lives."""
        at = self._builder.at("", scope_of(key, "read"))
        handles = self._shard_handles(key, dialect)
        return [at.op(READ, [h], "shard", controls=waits, dtype=dtype) for h in handles]

    def _write_own(self, access: OutsideAccess, dialect: Dialect) -> None:
        """Lets a copy of the replicas' program write its part of a value."""
        op, layout = access.op, self._layouts[access.key]
        at = self._builder.at(op.device, scope_of(access.key, "write"))
        shard = dialect.shard_of(access.copy)
        own = dialect.slice_own(at.within("own_part"), op.inputs[1], layout, shard)
        shape = layout.shard_shape(shard)
        if not isinstance(layout, TileLayout) and len(shape) != 1:
            own = at.reshape(own, shape, "shaped")
        handle = self._shard_handles(access.key, dialect)[access.copy]
        node = copy_of(op.node)
        # The shard has a shape of its own.
        for attribute in ("validate_shape", "_output_shapes"):
            node.attr.pop(attribute, None)
        self._writes[op.name] = rewired(node, [str(handle), str(own), *_waits(access)])

    def _write_all(self, access: OutsideAccess) -> None:
        """Lets the host write every shard."""
        op = access.op
        at = self._builder.at("", scope_of(access.key, "write"))
        parts = whole_rows.cut(at, op.inputs[1], self._tiles(access.key))
        done = tf.compat.v1.NodeDef(name=op.name, op="NoOp", input=_waits(access))
        for handle, part in zip(self._shard_handles(access.key, None), parts, strict=True):
            name = self._builder.unique(f"{at.scope}/shard")
            inputs = [str(handle), str(part), *_waits(access)]
            node = tf.compat.v1.NodeDef(name=name, op=op.type, input=inputs)
            node.attr["dtype"].type = op.attribute("dtype").type
            self._writes[name] = node
            done.input.append(f"^{name}")
        self._writes[op.name] = done

    def _tiles(self, key: str) -> TileLayout:
        layout = self._layouts[key]
        assert isinstance(layout, TileLayout), f"a host has {key}, which no TPU program shares"
        return layout

    def _shard_handles(self, key: str, dialect: Dialect | None) -> list[Value]:
        """The handles of the shards that the graph has of a variable; on the host, of all."""
        if key not in self._handles:
            of_all = self._layouts[key].num_shards
            count = of_all if dialect is None else len(dialect.replicas.local)
            self._handles[key] = [self._shard_handle(key, n, dialect) for n in range(count)]
        return self._handles[key]

    def _shard_handle(self, key: str, copy: int, dialect: Dialect | None) -> Value:
        at = self._builder.at("", scope_of(key, f"shard_{copy}"))
        if dialect is None:
            placeholder = handle = at.handle_input("")
        else:
            placeholder, handle = dialect.shard_handle(at)
        self._inputs.append(ShardInput(placeholder.op, key, copy, handle.op))
        return handle

    def _finish(self) -> Redirected:
        """The new graph, without the reads that were served.

        Reads that nobody looks at go as well: they would hold on to storage that is gone.
        """
        gone = {value.op: instead.op for value, instead in self._values.items()}
        kept = [
            op.node
            for op in self._view
            if (op.name in self._view.live or op.type == "Placeholder")
            and op.name not in gone
            and op.name not in self._writes
        ]
        nodes = (*kept, *self._writes.values(), *self._nodes)
        return Redirected(
            tuple(self._with_instead(node, gone) for node in nodes),
            tuple(self._inputs),
            tuple(dict.fromkeys(gone.get(c, c) for c in self._view.control_outputs)),
            tuple(self._values.get(value, value) for value in self._view.outputs),
            self._lone_reads,
        )

    def _with_instead(self, node: Any, gone: Mapping[str, str]) -> Any:
        """A node that takes, and waits for, what stands in the place of reads."""
        inputs = (*node.input, *(f"^{name}" for name in self._waits.get(node.name, ())))
        return rewired(node, inputs_now(inputs, self._values, gone))


def _place(access: OutsideAccess) -> str | None:
    """The TPU program that an access is in, "" for a copy of the replicas', None for the host."""
    return None if access.is_on_host else decoded(program_of(access.op.node))


def _waits(access: OutsideAccess) -> list[str]:
    """What a write waits for, as a NodeDef names it."""
    return [f"^{name}" for name in dict.fromkeys((*access.op.controls, *access.after))]
