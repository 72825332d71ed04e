"""Leads reads of variables that live in shards onto the shards, where one program runs on TPUs.

A function that only reads such a variable (it evaluates, predicts) is traced as if the variable
were whole. In the TPU program its reads become an all-gather; outside of the program, on the host,
they become one read of every shard. Whatever else is done to the variable has no such form.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.analysis.accesses import VariableAccess, accesses, is_call
from tf_wu_shard.dialects import plain_ops, whole_rows
from tf_wu_shard.dialects.base import Dialect
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.view import GraphView, Op, Value
from tf_wu_shard.layout import RowLayout
from tf_wu_shard.rewrite.lowering import Lowered
from tf_wu_shard.rewrite.names import scope_of
from tf_wu_shard.rewrite.result import ShardInput
from tf_wu_shard.rules.variables import READ, Access

# A variable enters the TPU program through this op.
_ENTERS = "TPUReplicatedInput"

# Names the program that an op is in.
_PROGRAM = "_tpu_replicate"


def lower_shard_reads(
    view: GraphView,
    layouts: Mapping[str, RowLayout],
    on_host: Mapping[str, str],
    dialect_of: Callable[[str], Dialect],
    writers: Mapping[str, Sequence[str]],
) -> Lowered | None:
    """Replaces reads of variables in shards.

    Args:
        view: The graph.
        layouts: For each variable that lives in shards, by its key, how it is cut.
        on_host: For each placeholder of the whole of such a variable, by name, its key.
        dialect_of: How the replicas of a TPU program talk, given its name.
        writers: For each variable whose shards ops of the program write, by key, those ops.

    Returns:
        The new graph, or None where no such variable is touched.

    Raises:
        StorageError: If something other than reading is done to one.
    """
    in_program: dict[str, list[Op]] = {}
    for handle, ref in view.variables.items():
        if ref.key in layouts and handle not in on_host:
            reads = _only_reads(ref.key, accesses(view, handle))
            if reads:
                in_program.setdefault(ref.key, []).extend(reads)
    outside: dict[str, list[Op]] = {}
    for placeholder, key in on_host.items():
        consumers = [op for op, _ in view.consumers(Value(placeholder)) if op.type != _ENTERS]
        found = accesses(view, placeholder) if consumers else []
        reads = _only_reads(key, [a for a in found if a.op.type != _ENTERS])
        if reads:
            outside.setdefault(key, []).extend(reads)
    if not in_program and not outside:
        return None
    lowering = _Lowering(view, layouts)
    for (program, after), own in _by_program(view, in_program, writers).items():
        lowering.gather(own, dialect_of(program), after, writers)
    lowering.join_on_host(outside)
    return lowering.finish()


def _by_program(
    view: GraphView, reads: Mapping[str, list[Op]], writers: Mapping[str, Sequence[str]]
) -> dict[tuple[str, tuple[str, ...]], dict[str, list[Op]]]:
    """Reads by the TPU program they stand in and the writes before them, then by variable.

    Reads that are served together wait for the same writes, and for nothing else: each of those
    comes before every one of the reads, so no write waits for what waits for it.
    """
    found: dict[tuple[str, tuple[str, ...]], dict[str, list[Op]]] = {}
    for key, ops in reads.items():
        writes = [view.ops[name] for name in writers.get(key, ())]
        for op in ops:
            attributes = op.node.attr
            # Asking for what is not there would add it.
            inside = _PROGRAM in attributes
            program = attributes[_PROGRAM].s.decode() if inside else ""
            after = tuple(write.name for write in writes if write.position < op.position)
            found.setdefault((program, after), {}).setdefault(key, []).append(op)
    return found


def _only_reads(key: str, found: list[VariableAccess]) -> list[Op]:
    """The reads among the accesses of a variable.

    Raises:
        StorageError: If there are others.
    """
    for access in found:
        if access.op.type == READ or access.access is Access.PASSED_ON:
            continue
        where = f"the function's op {access.op.name!r} ({access.op.type})"
        if is_call(access.op.type):
            raise StorageError(
                f"{where} hands variable {key!r}, which lives in shards, to a function that uses"
                " it; let strategy.run call that Python function itself, not a tf.function of it,"
                " or trace it before the variable is sharded"
            )
        raise StorageError(
            f"{where} uses variable {key!r}, which lives in shards, in a way that its shards do"
            " not allow; read the variable's value and use that"
        )
    return [access.op for access in found if access.op.type == READ]


class _Lowering:
    def __init__(self, view: GraphView, layouts: Mapping[str, RowLayout]) -> None:
        self._view = view
        self._layouts = layouts
        self._builder = GraphBuilder(view.ops)
        self._nodes: list[Any] = []
        self._inputs: list[ShardInput] = []
        self._values: dict[Value, Value] = {}
        # Reads that a write waits for, each with what reads the shard in its place.
        self._waited_for: dict[str, str] = {}

    def _begin(self) -> None:
        """Starts emitting for another program, or the host: no constant serves two of them."""
        self._nodes += self._builder.nodes
        self._builder = GraphBuilder([*self._view.ops, *(node.name for node in self._nodes)])

    def gather(
        self,
        reads: Mapping[str, list[Op]],
        dialect: Dialect,
        after: Sequence[str],
        writers: Mapping[str, Sequence[str]],
    ) -> None:
        """Serves reads of a program that come after the same writes."""
        self._begin()
        buckets: dict[tuple[int, Hashable], list[str]] = {}
        for key, ops in reads.items():
            layout, dtype = self._layouts[key], ops[0].node.attr["dtype"].type
            buckets.setdefault((dtype, layout.bucket_kind), []).append(key)
        for (dtype, _), keys in buckets.items():
            shards = []
            for key in keys:
                name = scope_of(key, "shard_0")
                placeholder, handle = dialect.shard_handle(self._builder, name)
                self._inputs.append(ShardInput(placeholder.op, key, 0, handle.op))
                shard = self._read(handle, key, dtype)
                if key in writers:
                    self._builder.nodes[-1].input.extend(f"^{write}" for write in after)
                    self._waited_for.update({op.name: shard.op for op in reads[key]})
                shards.append([shard])
            scope = scope_of(keys[0] if len(keys) == 1 else "read", "all_gather")
            layouts = [self._layouts[key] for key in keys]
            whole = dialect.all_gather(self._builder, shards, layouts, dtype, scope)
            for key, values in zip(keys, whole, strict=True):
                self._values.update({Value(op.name): values[0] for op in reads[key]})
        dialect.adopt(self._builder.nodes)

    def join_on_host(self, reads: Mapping[str, list[Op]]) -> None:
        """Serves the host's reads."""
        self._begin()
        for key, ops in reads.items():
            self._join(key, ops)

    def _join(self, key: str, reads: list[Op]) -> None:
        layout, dtype = self._layouts[key], reads[0].node.attr["dtype"].type
        shards = []
        for replica in range(layout.num_shards):
            handle = plain_ops.handle_input(self._builder, scope_of(key, f"shard_{replica}"))
            self._inputs.append(ShardInput(handle.op, key, replica, handle.op))
            shards.append(self._read(handle, key, dtype))
        scope = scope_of(key, "read")
        whole = whole_rows.joined(self._builder, shards, layout, dtype, scope)
        self._values.update({Value(op.name): whole for op in reads})

    def _read(self, handle: Value, key: str, dtype: int) -> Value:
        return self._builder.op(
            READ, [handle], name=scope_of(key, "shard"), device="", types={"dtype": dtype}
        )

    def finish(self) -> Lowered:
        """The new graph, without the reads that were served."""
        gone = {value.op: instead.op for value, instead in self._values.items()}
        # Reads that nobody looks at go as well: they would hold on to storage that is gone.
        kept = (op for op in self._view if op.name in self._view.live or op.type == "Placeholder")
        nodes = [self._led(op, gone) for op in kept if op.name not in gone]
        return Lowered(
            (*nodes, *self._nodes, *self._builder.nodes),
            tuple(self._inputs),
            tuple(dict.fromkeys(gone.get(c, c) for c in self._view.control_outputs)),
            tuple(self._values.get(v, v) for v in self._view.outputs),
        )

    def _led(self, op: Op, gone: Mapping[str, str]) -> Any:
        touched = any(v in self._values for v in op.inputs) or any(c in gone for c in op.controls)
        if not touched:
            return op.node
        node = tf.compat.v1.NodeDef()
        node.CopyFrom(op.node)
        del node.input[:]
        node.input.extend(str(self._values.get(v, v)) for v in op.inputs)
        # What waited for a read did so to come after it; where nothing writes, that is no matter.
        controls = (self._waited_for.get(c, c) for c in op.controls)
        node.input.extend(f"^{c}" for c in dict.fromkeys(controls) if c not in gone)
        return node
