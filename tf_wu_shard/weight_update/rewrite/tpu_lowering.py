"""Redirects accesses of variables in shards to the shards, where one program runs on TPUs.

A function that reads or writes such a variable outside of a sharded update (it evaluates, resets,
trains with an update that cannot be shared) is traced as if the variable were whole. In the TPU
program its reads become an all-gather and its writes a write of each replica's own part; outside of
the program, on the host, they become one read or write of every shard. Whatever else is done to the
handle has no such form.

Order: TensorFlow puts all accesses of one variable in order by control edges, those of the host and
those of programs alike, and each keeps its edges. Only a call on the host whose callee was
redirected to the shards when it was traced takes the shards' own handles, of which these edges know
nothing; it is put in order by its place in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.nodes import copy_of, rewired
from tf_wu_shard.graph.op import Op, Value, decoded, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.tpu import whole_rows
from tf_wu_shard.grounds.tpu.ops import PROGRAM
from tf_wu_shard.layout import TileLayout
from tf_wu_shard.rules.variables import READ, WRITES
from tf_wu_shard.weight_update.rewrite.lowering import Lowered
from tf_wu_shard.weight_update.rewrite.names import scope_of
from tf_wu_shard.weight_update.rewrite.result import ShardInput
from tf_wu_shard.weight_update.rewrite.tpu_accesses import DoneToShards, Host, done_to_shards


def lower_accesses_on_tpus(
    view: GraphView,
    layouts: Mapping[str, TileLayout],
    host: Host,
    dialect_of: Callable[[str], Dialect],
    writers: Mapping[str, Sequence[str]],
) -> Lowered | None:
    """Replaces reads and writes of variables in shards.

    Args:
        view: The graph.
        layouts: For each variable that lives in shards, by its key, how it is cut.
        host: How the host gets at them.
        dialect_of: How the replicas of a TPU program talk, given its name.
        writers: For each variable whose shards ops of the program write, by key, those ops.

    Returns:
        The new graph, or None where no such variable is touched.

    Raises:
        StorageError: If something other than reading and writing values is done to one.
    """
    done = done_to_shards(view, layouts, host)
    if done.is_nothing:
        return None
    return _Lowering(view, layouts, done, host.turn, done.writers(writers)).run(dialect_of)


class _Lowering:
    def __init__(
        self,
        view: GraphView,
        layouts: Mapping[str, TileLayout],
        done: DoneToShards,
        turn: Callable[[Op], int],
        writers: Mapping[str, Sequence[str]],
    ) -> None:
        self._view = view
        self._layouts = layouts
        self._inside, self._outside, self._calls = done
        self._builder = GraphBuilder(view.ops, view.dtype)
        self._nodes: list[Any] = []
        self._inputs: list[ShardInput] = []
        self._values: dict[Value, Value] = {}
        # Nodes that stand in the place of writes, by name.
        self._writes: dict[str, Any] = {}
        # Reads that a write waits for, each with what reads the shards in its place.
        self._waited_for: dict[str, tuple[str, ...]] = {}
        self._turn = turn
        # For each call, what it waits for beside its own control edges.
        self._call_waits: dict[str, list[str]] = {}
        self._writers = writers

    def run(self, dialect_of: Callable[[str], Dialect]) -> Lowered:
        """Does it."""
        for calls in self._calls.values():
            self._order(calls)
        for program, accessed in self._by_program().items():
            dialect = dialect_of(program)
            for after, reads in self._by_turn(accessed).items():
                self._gather(reads, dialect, after)
            self._begin()
            for key, ops in accessed.items():
                for op in ops:
                    if op.type in WRITES:
                        self._write_own(key, op, dialect)
            dialect.adopt(self._builder.nodes)
        self._begin()
        for after, reads in self._by_turn(self._outside).items():
            for key, ops in reads.items():
                self._join(key, ops, after)
        for key, ops in self._outside.items():
            for op in ops:
                if op.type in WRITES:
                    self._write_all(key, op)
        return self._finish()

    def _order(self, calls: Mapping[str, bool]) -> None:
        """Puts the calls that take shards of one variable in order."""
        before: list[str] = []
        reads: list[str] = []
        for name in sorted(calls, key=lambda name: self._turn(self._view.ops[name])):
            self._call_waits.setdefault(name, []).extend(
                [*before, *reads] if calls[name] else before
            )
            if calls[name]:
                before, reads = [name], []
            else:
                reads.append(name)

    def _by_program(self) -> dict[str, dict[str, list[Op]]]:
        found: dict[str, dict[str, list[Op]]] = {}
        for key, ops in self._inside.items():
            for op in ops:
                attributes = op.node.attr
                # Asking for what is not there would add it.
                program = decoded(attributes[PROGRAM].s) if PROGRAM in attributes else ""
                found.setdefault(program, {}).setdefault(key, []).append(op)
        return found

    def _by_turn(
        self, accessed: Mapping[str, list[Op]]
    ) -> dict[tuple[str, ...], dict[str, list[Op]]]:
        """Reads by the writes before them, then by variable.

        Reads that are served together wait for the same writes, and for nothing else: each of those
        comes before every one of the reads, so no write waits for what waits for it.
        """
        found: dict[tuple[str, ...], dict[str, list[Op]]] = {}
        for key, ops in accessed.items():
            for op in ops:
                if op.type == READ:
                    after = tuple(
                        w for w in self._writers.get(key, ()) if self._is_before(key, w, op)
                    )
                    found.setdefault(after, {}).setdefault(key, []).append(op)
        return found

    def _is_before(self, key: str, write: str, op: Op) -> bool:
        other = self._view.ops[write]
        if write in self._calls.get(key, {}):
            return self._turn(other) < self._turn(op)
        return other.position < op.position

    def _begin(self) -> None:
        """Starts emitting for another program, or the host: no constant serves two of them."""
        self._nodes += self._builder.nodes
        taken = [*self._view.ops, *(node.name for node in self._nodes)]
        self._builder = GraphBuilder(taken, self._view.dtype)

    def _gather(
        self, reads: Mapping[str, list[Op]], dialect: Dialect, after: Sequence[str]
    ) -> None:
        """Serves reads of a program that come after the same writes."""
        self._begin()
        buckets: dict[tuple[int, Hashable], list[str]] = {}
        for key, ops in reads.items():
            layout, dtype = self._layouts[key], ops[0].attribute("dtype").type
            buckets.setdefault((dtype, layout.bucket_kind), []).append(key)
        for (dtype, _), keys in buckets.items():
            shards = []
            for key in keys:
                shard = self._read(self._own_handle(key, dialect), key, dtype, after)
                self._note_reads(key, reads[key], [shard])
                shards.append([shard])
            scope = scope_of(keys[0] if len(keys) == 1 else "reads", "all_gather")
            layouts = [self._layouts[key] for key in keys]
            whole = dialect.all_gather(self._builder.at("", scope), shards, layouts)
            for key, values in zip(keys, whole, strict=True):
                self._values.update({Value(op.name): values[0] for op in reads[key]})
        dialect.adopt(self._builder.nodes)

    def _write_own(self, key: str, op: Op, dialect: Dialect) -> None:
        """Serves a program's write: each replica writes its part."""
        handle, at = self._own_handle(key, dialect), self._builder.at("", scope_of(key, "own_part"))
        own = dialect.slice_own(at, op.inputs[1], self._layouts[key], 0)
        node = copy_of(op.node)
        # The shard has a shape of its own.
        for attribute in ("validate_shape", "_output_shapes"):
            node.attr.pop(attribute, None)
        self._write(key, op, node, [str(handle), str(own)])

    def _join(self, key: str, reads: list[Op], after: Sequence[str]) -> None:
        """Serves the host's reads of one variable that come after the same writes."""
        layout, dtype = self._layouts[key], reads[0].attribute("dtype").type
        shards = [self._read(handle, key, dtype, after) for handle in self._all_handles(key)]
        self._note_reads(key, reads, shards)
        whole = whole_rows.joined(self._builder.at("", scope_of(key, "read")), shards, layout)
        self._values.update({Value(op.name): whole for op in reads})

    def _write_all(self, key: str, op: Op) -> None:
        """Serves a write of the host: every shard is written."""
        layout, dtype = self._layouts[key], op.attribute("dtype").type
        scope = scope_of(key, "write")
        parts = whole_rows.cut(self._builder.at("", scope), op.inputs[1], layout)
        done = []
        for handle, part in zip(self._all_handles(key), parts, strict=True):
            name = self._builder.unique(f"{scope}/shard")
            node = tf.compat.v1.NodeDef(name=name, op=op.type)
            node.attr["dtype"].type = dtype
            self._write(key, op, node, [str(handle), str(part)])
            done.append(f"^{name}")
        node = tf.compat.v1.NodeDef(name=op.name, op="NoOp")
        self._write(key, op, node, done)

    def _write(self, key: str, op: Op, node: Any, inputs: Iterable[str]) -> None:
        del node.input[:]
        node.input.extend(inputs)
        node.input.extend(self._controls(op, key))
        self._writes[node.name] = node

    def _controls(self, op: Op, key: str) -> list[str]:
        """What a write waits for: its own control edges, and calls that take the shards."""
        calls = self._calls.get(key, {})
        before = [name for name in calls if self._turn(self._view.ops[name]) < self._turn(op)]
        for name in calls:
            if name not in before:
                self._call_waits.setdefault(name, []).append(op.name)
        return [f"^{name}" for name in dict.fromkeys([*op.controls, *before])]

    def _note_reads(self, key: str, reads: Iterable[Op], shards: Sequence[Value]) -> None:
        """Notes what reads shards in the place of reads, for the writes that wait for these."""
        if key not in self._writers:
            return
        instead = tuple(shard.op for shard in shards)
        for op in reads:
            self._waited_for[op.name] = instead
            for name, may_write in self._calls.get(key, {}).items():
                if may_write and self._turn(op) < self._turn(self._view.ops[name]):
                    self._call_waits.setdefault(name, []).extend(instead)

    def _own_handle(self, key: str, dialect: Dialect) -> Value:
        at = self._builder.at("", scope_of(key, "shard_0"))
        placeholder, handle = dialect.shard_handle(at)
        self._inputs.append(ShardInput(placeholder.op, key, 0, handle.op))
        return handle

    def _all_handles(self, key: str) -> list[Value]:
        found = []
        for replica in range(self._layouts[key].num_shards):
            handle = self._builder.at("", "").handle_input(scope_of(key, f"shard_{replica}"))
            self._inputs.append(ShardInput(handle.op, key, replica, handle.op))
            found.append(handle)
        return found

    def _read(self, handle: Value, key: str, dtype: int, after: Iterable[str]) -> Value:
        at = self._builder.at("", scope_of(key, "shard"))
        return at.op(READ, [handle], "", controls=after, dtype=dtype)

    def _finish(self) -> Lowered:
        """The new graph, without the reads that were served."""
        gone = {value.op: instead.op for value, instead in self._values.items()}
        # Reads that nobody looks at go as well: they would hold on to storage that is gone.
        kept = (op for op in self._view if op.name in self._view.live or op.type == "Placeholder")
        nodes = [
            self._redirected(op.node, gone)
            for op in kept
            if op.name not in gone and op.name not in self._writes
        ]
        nodes += [self._redirected(node, gone) for node in self._writes.values()]
        emitted = [self._redirected(node, gone) for node in (*self._nodes, *self._builder.nodes)]
        return Lowered(
            (*nodes, *emitted),
            tuple(self._inputs),
            tuple(dict.fromkeys(gone.get(c, c) for c in self._view.control_outputs)),
            tuple(self._values.get(v, v) for v in self._view.outputs),
        )

    def _redirected(self, node: Any, gone: Mapping[str, str]) -> Any:
        """A node that takes what stands in the place of reads."""
        redirected: list[str] = []
        for text in node.input:
            if not text.startswith("^"):
                value = parse_value(text)
                redirected.append(str(self._values[value]) if value in self._values else text)
                continue
            # What waited for a read did so to come after it; where nothing writes, no matter.
            waits = self._waited_for.get(text[1:], () if text[1:] in gone else (text[1:],))
            redirected += [f"^{name}" for name in waits]
        redirected += [f"^{name}" for name in self._call_waits.get(node.name, ())]
        return rewired(node, redirected)
