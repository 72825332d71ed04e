"""What the host does to a variable that goes into shards: initialize, restore, save and read it.

Outside of the TPU program such a variable is used as if it were whole. Its initializer and what
restores it cut the value and write every shard; what reads it puts the shards together. Another op
takes the name of each op that is redirected so: programs go on fetching, running or awaiting that
name, and a checkpoint holds the whole value under the variable's own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import INT32
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value, attribute_in, parse_value
from tf_wu_shard.graph_def.program import Program
from tf_wu_shard.graph_def.program_view import HANDLE
from tf_wu_shard.grounds.tpu import whole_rows
from tf_wu_shard.layout import TileLayout
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.weight_update.rewrite.names import scope_of

_ASSIGN = "AssignVariableOp"
_IS_INITIALIZED = "VarIsInitializedOp"
_LED = frozenset({READ, _ASSIGN, _IS_INITIALIZED})


# TensorFlow's resource_handle.h: every run of such a VarHandleOp makes another variable.
_ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"


class Shards(NamedTuple):
    """A variable's shards.

    Attributes:
        key: Name of the VarHandleOp of the whole variable.
        dtype: Its element type, as a DataType number.
        layout: How it is cut.
        handles: For each replica the VarHandleOp of its shard.
        devices: For each replica where its shard lives.
    """

    key: str
    dtype: int
    layout: TileLayout
    handles: tuple[str, ...]
    devices: tuple[str, ...]


def uses_by_variable(graph_def: Any, program: Program) -> dict[str, list[Any]]:
    """For each VarHandleOp, by name, the NodeDefs outside of the program that take its handle."""
    inside = {node.name for node in program.nodes}
    found: dict[str, list[Any]] = {n.name: [] for n in graph_def.node if n.op == HANDLE}
    for node in graph_def.node:
        if node.name in inside:
            continue
        for text in node.input:
            name = text.partition(":")[0]
            if name in found and node not in found[name]:
                found[name].append(node)
    return found


def must_stay_whole(graph_def: Any, uses: Mapping[str, Iterable[Any]]) -> dict[str, Refusal]:
    """The variables that the host uses in a way which shards do not allow, each with the reason.

    Args:
        graph_def: The GraphDef.
        uses: What `uses_by_variable` found in it.
    """
    found: dict[str, Refusal] = {}
    owners: dict[tuple[bytes, bytes], str] = {}
    for node in graph_def.node:
        if node.op != HANDLE:
            continue
        shared = attribute_in(node.attr, "shared_name").s
        if shared == _ANONYMOUS:
            found[node.name] = refusals.Storage.MADE_ANEW.at()
            continue
        resource = (attribute_in(node.attr, "container").s, shared or node.name.encode())
        other = owners.setdefault(resource, node.name)
        if other != node.name:
            found[node.name] = refusals.Storage.SAME_AS_ANOTHER.at(other=other)
            found[other] = refusals.Storage.SAME_AS_ANOTHER.at(other=node.name)
    for name, users in uses.items():
        for user in users:
            if name not in found and (user.op not in _LED or name in user.input[1:]):
                found[name] = refusals.Storage.USED_BY_HOST.at(op=user.name, op_type=user.op)
    return found


class HostAccesses:
    """Redirects the host's uses of variables onto their shards.

    Attributes:
        replaced: Names of the old ops that others, of the same name, take the place of.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        """Starts with nothing redirected.

        Args:
            taken: Names that new nodes must not have.
        """
        self._builder = GraphBuilder(taken)
        self.replaced: set[str] = set()

    @property
    def nodes(self) -> list[Any]:
        """The new NodeDefs."""
        return self._builder.nodes

    def unique(self, name: str) -> str:
        """A name like `name` that no node has; it is taken from now on."""
        return self._builder.unique(name)

    def make_handles(self, shards: Shards, template: Any) -> None:
        """Adds the VarHandleOps of a variable's shards, in the place of the whole variable's.

        Args:
            shards: The shards.
            template: The NodeDef of the whole variable's.
        """
        for number, (name, device) in enumerate(zip(shards.handles, shards.devices, strict=True)):
            node = tf.compat.v1.NodeDef(name=name, op=HANDLE, device=device)
            node.attr["container"].CopyFrom(attribute_in(template.attr, "container"))
            node.attr["shared_name"].s = name.encode()
            node.attr["dtype"].type = shards.dtype
            for size in shards.layout.shard_shape(number):
                node.attr["shape"].shape.dim.add().size = size
            self._builder.add(node)
        self.replaced.add(template.name)

    def lead(self, shards: Shards, user: Any) -> None:
        """Redirects one use of the whole variable.

        Args:
            shards: The variable's shards.
            user: The NodeDef that takes its handle.
        """
        first = len(self.nodes)
        controls = [text[1:] for text in user.input if text[0] == "^"]
        if user.op == READ:
            self._read(shards, user, controls)
        elif user.op == _ASSIGN:
            self._assign(shards, user, controls)
        else:
            self._is_initialized(shards, user, controls)
        for node in self.nodes[first:]:
            if node.op not in _LED:
                # What touches a shard is where the shard is, the rest where its user was.
                node.device = user.device
        self.replaced.add(user.name)

    def add_read(self, shards: Shards) -> str:
        """Adds an op that reads the whole variable; returns its name."""
        name = self._builder.unique(scope_of(shards.key, "value"))
        self.lead(shards, tf.compat.v1.NodeDef(name=name, op=READ))
        return name

    def _read(self, shards: Shards, user: Any, controls: list[str]) -> None:
        at = self._builder.at("", scope_of(shards.key, "read"))
        parts = [
            at.on(device).op(READ, [Value(handle)], "", controls=controls, dtype=shards.dtype)
            for handle, device in zip(shards.handles, shards.devices, strict=True)
        ]
        whole = whole_rows.joined(at, parts, shards.layout)
        self._last(user, "Identity", [str(whole)], T=shards.dtype)

    def _assign(self, shards: Shards, user: Any, controls: list[str]) -> None:
        at = self._builder.at("", scope_of(shards.key, "assign"))
        value = self._builder.note(parse_value(user.input[1]), shards.dtype)
        parts = whole_rows.cut(at, value, shards.layout)
        written = [
            at.on(device).op(_ASSIGN, [Value(handle), part], "", controls=controls)
            for handle, device, part in zip(shards.handles, shards.devices, parts, strict=True)
        ]
        self._last(user, "NoOp", [f"^{op}" for op, _ in written])

    def _is_initialized(self, shards: Shards, user: Any, controls: list[str]) -> None:
        at = self._builder.at("", scope_of(shards.key, "is_initialized"))
        parts = [
            at.on(device).op(_IS_INITIALIZED, [Value(handle)], "", controls=controls)
            for handle, device in zip(shards.handles, shards.devices, strict=True)
        ]
        answers = at.op("Pack", parts, "each", axis=0)
        self._last(user, "All", [str(answers), str(at.constant([0]))], Tidx=INT32)

    def _last(self, user: Any, op_type: str, inputs: list[str], **types: int) -> None:
        """Adds the op that takes the place, and the name, of the whole variable's user."""
        node = tf.compat.v1.NodeDef(name=user.name, op=op_type, device=user.device, input=inputs)
        for key, number in types.items():
            node.attr[key].type = number
        self.nodes.append(node)
