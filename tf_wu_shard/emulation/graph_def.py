"""A GraphDef of TensorFlow 1 with TPU programs, turned into one that runs in a plain session.

Answers: the graph in which every op of a program stands once for each replica, on a logical CPU
device. A variable that all replicas share enters a program as on a TPU: each replica gets a copy
of its value, and what the first one made of it is written back (TensorFlow's
distributed_tpu_rewrite_pass.cc).
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.emulation import attributes
from tf_wu_shard.emulation.lowering import lower
from tf_wu_shard.errors import EmulationError
from tf_wu_shard.graph.nodes import sources_of
from tf_wu_shard.tensorflow_private import function_graph, tpu_strategy

_HANDLE, _READ, _ASSIGN = "VarHandleOp", "ReadVariableOp", "AssignVariableOp"
_INPUT, _METADATA, _MARK = "TPUReplicatedInput", "TPUReplicateMetadata", "_tpu_replicate"
_OUTPUT = "TPUReplicatedOutput"
_RESOURCE = 20

# A loop of TensorFlow 1 is a cycle of plain ops in a frame of its own, which nothing crosses.
_LOOP = frozenset({"Enter", "RefEnter", "NextIteration", "RefNextIteration"})


def lower_graph_def(graph_def: Any) -> Any:
    """Turns the TPU programs of a GraphDef into copies side by side.

    Run what comes out in a `tf.compat.v1.Session` with a CPU device for each of N replicas and one
    for the host, `tf.compat.v1.ConfigProto(device_count={"CPU": N + 1})`. Ops outside of the
    programs keep their names.

    Args:
        graph_def: The GraphDef. It is not changed.

    Returns:
        The GraphDef to run.

    Raises:
        EmulationError: It holds something that only a TPU can do.
    """
    prepared = tf.compat.v1.GraphDef()
    prepared.CopyFrom(graph_def)
    for node in prepared.node:
        if "TPU" in (tf.DeviceSpec.from_string(node.device).device_type or ""):
            # Placed with the replica that uses it, or the host.
            node.device = ""
    for metadata in [node for node in prepared.node if node.op == _METADATA]:
        _SharedVariables(prepared, metadata).pass_by_value()
    definition = _as_function(prepared)
    functions = {f.signature.name: f for f in graph_def.library.function}
    lowered = lower(definition, functions.get, tpu_strategy.replica_cpus)
    new = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    new.library.function.extend(lowered.added)
    signatures = _Signatures(new.library.function)
    outputs = {node.name: signatures.outputs(node) for node in lowered.definition.node_def}
    for node in lowered.definition.node_def:
        plain = new.node.add()
        plain.CopyFrom(node)
        plain.input[:] = [_plain_edge(text, outputs) for text in node.input]
    return new


class _SharedVariables:
    """The variables that enter a program as handles of the host, by value from now on."""

    def __init__(self, graph_def: Any, metadata: Any) -> None:
        self._graph_def = graph_def
        self._metadata = metadata
        self._program = metadata.attr[_MARK].s
        self._devices = tpu_strategy.replica_cpus(metadata.attr["num_replicas"].i)
        self._inside = {
            node.name
            for node in graph_def.node
            if _MARK in node.attr and node.attr[_MARK].s == self._program
        }

    def pass_by_value(self) -> None:
        nodes = {node.name: node for node in self._graph_def.node}
        users: dict[str, list[Any]] = collections.defaultdict(list)
        for name in self._inside:
            node = nodes[name]
            if node.op in _LOOP:
                raise EmulationError(
                    f"{node.op} {name!r} cannot be emulated: a loop of TensorFlow 1 in a TPU"
                    " program; build the graph after tf.compat.v1.enable_control_flow_v2()"
                )
            for text in node.input:
                source = nodes.get(text.partition(":")[0])
                if source is not None and source.op == _HANDLE and node not in users[source.name]:
                    users[source.name].append(node)
        before = list(self._metadata.input)
        written = [
            self._pass(nodes[name], inside, before) for name, inside in users.items() if inside
        ]
        self._write_back_first(written)

    def _pass(self, handle: Any, users: Iterable[Any], before: Sequence[str]) -> str:
        """Gives each replica a copy of a variable; returns the op that writes one back."""
        scope, dtype = f"by_value/{self._metadata.name}/{handle.name}", handle.attr["dtype"]
        read = self._add(_READ, f"{scope}/read", [handle.name, *before], dtype=dtype)
        copies = []
        for replica, device in enumerate(self._devices):
            copy = self._add(_HANDLE, f"{scope}/replica_{replica}", [], device)
            for key in ("dtype", "shape"):
                copy.attr[key].CopyFrom(handle.attr[key])
            copy.attr["shared_name"].s = copy.name.encode()
            inputs = [copy.name, read.name]
            filled = self._add(_ASSIGN, f"{copy.name}/fill", inputs, device, dtype=dtype)
            self._metadata.input.append(f"^{filled.name}")
            copies.append(copy.name)
        count = attributes.integer(len(copies))
        resource = attributes.dtype(_RESOURCE)
        entry = self._add(_INPUT, f"{scope}/entry", copies, N=count, T=resource)
        for user in users:
            data = [entry.name if text == handle.name else text for text in user.input]
            # The copy is used only when it is filled.
            user.input[:] = [*data, f"^{self._metadata.name}"]
        made = self._add(_READ, f"{scope}/made", [copies[0]], self._devices[0], dtype=dtype)
        made.input.extend(f"^{user.name}" for user in users)
        return self._add(_ASSIGN, f"{scope}/back", [handle.name, made.name], dtype=dtype).name

    def _write_back_first(self, written: Sequence[str]) -> None:
        """Lets the host go on with what the program yields only when all is written back."""
        own = {*written, *(f"{name.removesuffix('back')}made" for name in written)}
        yields = self._inside | {
            node.name
            for node in self._graph_def.node
            if node.op == _OUTPUT and node.input[0].partition(":")[0] in self._inside
        }
        for node in self._graph_def.node:
            if node.name not in yields | own and not yields.isdisjoint(sources_of(node)):
                node.input.extend(f"^{name}" for name in written)

    def _add(
        self, op_type: str, name: str, inputs: Sequence[str], device: str = "", **attrs: Any
    ) -> Any:
        node = self._graph_def.node.add(name=name, op=op_type, device=device)
        node.input.extend(inputs)
        for key, value in attrs.items():
            node.attr[key].CopyFrom(value)
        return node


class _Signatures:
    """How the outputs of ops are called in a FunctionDef."""

    def __init__(self, functions: Iterable[Any]) -> None:
        self._functions = {f.signature.name: f.signature for f in functions}

    def outputs(self, node: Any) -> list[str]:
        """For each output of a node, "output:index".

        Raises:
            EmulationError: TensorFlow does not know the op.
        """
        definition = self._functions.get(node.op) or function_graph.op_def(node.op)
        if definition is None:
            raise EmulationError(f"{node.op} {node.name!r} is of a type unknown to TensorFlow")
        found = []
        for output in definition.output_arg:
            count = 1
            if output.number_attr:
                count = node.attr[output.number_attr].i
            elif output.type_list_attr:
                count = len(node.attr[output.type_list_attr].list.type)
            found += [f"{output.name}:{index}" for index in range(count)]
        return found


def _as_function(graph_def: Any) -> Any:
    """A FunctionDef, without arguments or results, of a GraphDef's nodes."""
    definition = type(tf.compat.v1.GraphDef().library.function.add())()
    definition.signature.name = "graph"
    signatures = _Signatures(graph_def.library.function)
    outputs = {node.name: signatures.outputs(node) for node in graph_def.node}
    for node in graph_def.node:
        new = definition.node_def.add()
        new.CopyFrom(node)
        new.input[:] = [_function_edge(text, outputs) for text in node.input]
    return definition


def _function_edge(text: str, outputs: Mapping[str, Sequence[str]]) -> str:
    if text[0] == "^":
        return text
    name, _, index = text.partition(":")
    return f"{name}:{outputs[name][int(index or 0)]}"


def _plain_edge(text: str, outputs: Mapping[str, Sequence[str]]) -> str:
    if text[0] == "^":
        return text
    name, _, output = text.partition(":")
    index = list(outputs[name]).index(output)
    return f"{name}:{index}" if index else name
