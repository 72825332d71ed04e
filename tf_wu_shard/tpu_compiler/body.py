"""What one replica computes: the cluster of a TPU graph, taken out of it as a function.

TensorFlow traces `strategy.run` once for all replicas and leaves the ops of the replica, marked, in
the flat graph of the function around it, between TPUReplicatedInput and TPUReplicatedOutput. A TPU
host cuts them out when it compiles; here they are cut out without one. Ops outside the cluster run
on the host and are left out.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.op import attribute_in
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tpu_compiler.collectives import COLLECTIVES, SHAPED, with_xla_forms

_MARK = "_tpu_replicate"
# How the host's runtime is to place a node; a function of its own has no such marks.
_HOST_MARKS = frozenset({_MARK, "_class", "_tpu_input_identity", "_tpu_output_identity"})

# Stateful in TensorFlow's registry, but only for what they read.
_READS = frozenset({"ReadVariableOp", "VariableShape", "ResourceGather", "ResourceGatherNd"})


class ReplicaBodyError(WuShardError, ValueError):
    """A graph that holds no single cluster, or one whose inputs have no static shape."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """What enters the function.

    Attributes:
        name: The name of its Placeholder in the body.
        dtype: A DataType number: of the tensor, or of the variable's value.
        shape: Of the tensor, or of the variable's value.
        is_variable: Whether a resource handle enters.
        handle: The eager handle that the trace captured, or None.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    is_variable: bool
    handle: Any = dataclasses.field(default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class ReplicaBody:
    """The function of one replica.

    Attributes:
        graph_def: Its nodes, with a Placeholder for each argument, and the functions they call.
        arguments: Tensors first, then variables.
        outputs: What it returns, "node:index" each.
        effects: Names of the nodes that must run though nobody reads their result.
        num_replicas: How many replicas run it.
    """

    graph_def: Any
    arguments: tuple[Argument, ...]
    outputs: tuple[str, ...]
    effects: tuple[str, ...]
    num_replicas: int

    @property
    def fingerprint(self) -> str:
        """A digest of the function; equal for functions of the same nodes and arguments."""
        nodes = self.graph_def.SerializeToString(deterministic=True)
        rest = repr((self.arguments, self.outputs, self.effects, self.num_replicas))
        return hashlib.sha256(nodes + rest.encode()).hexdigest()


def has_cluster(graph: Any) -> bool:
    """Whether a traced FuncGraph holds what `strategy.run` traced for a TPU."""
    return any(op.type == "TPUReplicateMetadata" for op in graph.get_operations())


def replica_body(graph: Any, batch: int | None = None) -> ReplicaBody:
    """Takes the cluster out of a traced FuncGraph.

    Args:
        graph: The FuncGraph, with one cluster in it; not changed.
        batch: The size of an input's first dimension where the trace left it open.

    Returns:
        The function of one replica; its collectives are ops that XLA knows on any machine.

    Raises:
        ReplicaBodyError: There is no cluster or more than one, or an input's shape is not known.
        CollectiveError: A collective has no form outside a TPU host.
    """
    graph_def = graph.as_graph_def()
    metadata = [node for node in graph_def.node if node.op == "TPUReplicateMetadata"]
    if len(metadata) != 1:
        raise ReplicaBodyError(f"{graph.name} holds {len(metadata)} TPU clusters, not one")
    mark = attribute_in(metadata[0].attr, _MARK).s
    inside = [
        n for n in graph_def.node if attribute_in(n.attr, _MARK).s == mark and n is not metadata[0]
    ]
    names = {node.name for node in inside}
    _check_whole(graph_def, names)
    arguments = _arguments(graph, inside, names, batch)
    nodes = [_placeholder(argument) for argument in arguments.values()]
    nodes += with_xla_forms(
        [_cut_out(node, names, arguments) for node in inside], _operand_shapes(graph, inside)
    )
    body = graph_def_of(nodes, graph_def)
    _rewrite_library(body.library, graph)
    return ReplicaBody(
        body,
        tuple(sorted(arguments.values(), key=lambda argument: argument.is_variable)),
        tuple(_outputs(graph_def, names)),
        tuple(node.name for node in inside if _has_effect(node)),
        attribute_in(metadata[0].attr, "num_replicas").i,
    )


def _check_whole(graph_def: Any, names: set[str]) -> None:
    """A node between two of the cluster's belongs to it; without the mark it would run on the host.

    Raises:
        ReplicaBodyError: There is such a node.
    """
    inputs = {
        node.name: [text.partition(":")[0] for text in node.input if text[0] != "^"]
        for node in graph_def.node
    }
    waiting = [source for name in names for source in inputs[name] if source not in names]
    path = {source: source for source in waiting}
    while waiting:
        name = waiting.pop()
        for source in inputs[name]:
            if source in names:
                raise ReplicaBodyError(
                    f"{path[name]} reads the TPU cluster and is read by it, and is not marked as"
                    f" part of it ({_MARK})"
                )
            if source not in path:
                path[source] = path[name]
                waiting.append(source)


def _arguments(
    graph: Any, inside: Iterable[Any], names: set[str], batch: int | None
) -> dict[str, Argument]:
    """What enters the cluster, by the "node:index" that it comes from, in the graph's order."""
    found: dict[str, Argument] = {}
    order = {op.name: place for place, op in enumerate(graph.get_operations())}
    handles = {placeholder.op.name: e for e, placeholder in function_graph.captured_handles(graph)}
    for node in inside:
        for text in node.input:
            source, _, index = text.partition(":")
            if source[0] != "^" and source not in names and text not in found:
                found[text] = _argument(graph, handles, source, int(index or 0), batch)
    return dict(sorted(found.items(), key=lambda item: order[item[0].partition(":")[0]]))


def _argument(
    graph: Any, handles: Mapping[str, Any], source: str, index: int, batch: int | None
) -> Argument:
    tensor = graph.get_operation_by_name(source).outputs[index]
    # "a:1" is no name for a node.
    name = f"{source}_{index}" if index else source
    if tensor.dtype == tf.resource:
        while tensor.op.inputs:
            tensor = tensor.op.inputs[0]
        shape, dtype = function_graph.handle_shape_and_type(tensor)
        if shape is None:
            raise ReplicaBodyError(f"the shape of the variable behind {source} is not known")
        handle = handles.get(tensor.op.name)
        return Argument(name, dtype, shape, is_variable=True, handle=handle)
    return Argument(
        name,
        tensor.dtype.as_datatype_enum,
        _static_shape(source, tensor.shape, batch),
        is_variable=False,
    )


def _static_shape(source: str, shape: tf.TensorShape, batch: int | None) -> tuple[int, ...]:
    sizes = [None] if shape.rank is None else shape.as_list()
    if sizes and sizes[0] is None and shape.rank is not None:
        sizes[0] = batch
    if any(size is None for size in sizes):
        raise ReplicaBodyError(
            f"the shape of the input {source} is {shape}, and a TPU program needs it whole; batch"
            " with drop_remainder=True, or say how many examples a replica takes (--batch)"
        )
    return tuple(sizes)


def _placeholder(argument: Argument) -> Any:
    node = tf.compat.v1.NodeDef(name=argument.name, op="Placeholder")
    dtype = tf.resource.as_datatype_enum if argument.is_variable else argument.dtype
    node.attr["dtype"].type = dtype
    if not argument.is_variable:
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(argument.shape).as_proto())
    return node


def _cut_out(node: Any, names: set[str], arguments: dict[str, Argument]) -> Any:
    """The node without its marks and without edges that wait for the host."""
    new = type(node)(name=node.name, op=node.op)
    for text in node.input:
        if text[0] != "^":
            new.input.append(arguments[text].name if text in arguments else text)
        elif text[1:] in names:
            new.input.append(text)
    for key, attribute in node.attr.items():
        if key not in _HOST_MARKS:
            new.attr[key].CopyFrom(attribute)
    return new


def _outputs(graph_def: Any, names: set[str]) -> Iterable[str]:
    for node in graph_def.node:
        if node.op == "TPUReplicatedOutput":
            source, _, index = node.input[0].partition(":")
            if source in names:
                yield f"{source}:{index or 0}"


def _has_effect(node: Any) -> bool:
    definition = function_graph.op_def(node.op)
    if node.op in _READS or definition is None:
        return False
    return bool(definition.is_stateful)


def _operand_shapes(graph: Any, nodes: Iterable[Any]) -> dict[str, tuple[int, ...]]:
    """The operands' static shapes of collectives whose form names them, where they are known."""
    shapes = {}
    for node in nodes:
        if node.op in SHAPED:
            shape = graph.get_operation_by_name(node.name).inputs[0].shape
            if shape.is_fully_defined():
                shapes[node.name] = tuple(shape)
    return shapes


def _rewrite_library(library: Any, graph: Any) -> None:
    """Replaces the collectives in the functions that the cluster calls."""
    for function in library.function:
        nodes = list(function.node_def)
        if any(node.op in COLLECTIVES for node in nodes):
            inner = function_graph.inner_graph(graph, function.signature.name)
            assert inner is not None, f"{function.signature.name} was traced with the step"
            replaced = with_xla_forms(nodes, _operand_shapes(inner, nodes))
            del function.node_def[:]
            function.node_def.extend(replaced)
