"""FunctionDefs written by hand, and read back as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.emulation import attributes, lowering

FLOAT = attributes.dtype(tf.float32.as_datatype_enum)
HANDLE = attributes.dtype(tf.resource.as_datatype_enum)


def node(name: str, op: str, *inputs: str, cluster: str = "", **attrs: Any) -> Any:
    """A NodeDef.

    Args:
        name: Its name.
        op: Its type.
        *inputs: As a FunctionDef names them, control inputs with a caret.
        cluster: The TPU cluster that it is part of, if any.
        **attrs: Its attributes, as AttrValues.
    """
    made = tf.compat.v1.NodeDef(name=name, op=op)
    made.input.extend(inputs)
    if cluster:
        made.attr["_tpu_replicate"].s = cluster.encode()
    for key, value in attrs.items():
        made.attr[key].CopyFrom(value)
    return made


def metadata(name: str, *inputs: str, cluster: str, replicas: int = 2, cores: int = 1) -> Any:
    """The op that says of how many replicas a cluster is."""
    sizes = {
        "num_replicas": attributes.integer(replicas),
        "num_cores_per_replica": attributes.integer(cores),
    }
    return node(name, "TPUReplicateMetadata", *inputs, cluster=cluster, **sizes)


def entry(name: str, *inputs: str, packed: bool = False) -> Any:
    """What brings a value into a cluster: one for each replica, or a packed handle."""
    dtype = HANDLE if packed else FLOAT
    return node(name, "TPUReplicatedInput", *inputs, T=dtype, is_packed=attributes.flag(packed))


def function(
    name: str,
    nodes: Sequence[Any],
    arguments: Sequence[str] = (),
    results: Mapping[str, str] | None = None,
    controls: Mapping[str, str] | None = None,
    **attrs: Any,
) -> Any:
    """A FunctionDef of float arguments and results.

    Args:
        name: Its name.
        nodes: Its NodeDefs.
        arguments: Names of its arguments.
        results: Tensors by name of the result.
        controls: Ops that it must run, by name of the control output.
        **attrs: Its attributes, as AttrValues.
    """
    made = type(tf.compat.v1.GraphDef().library.function.add())()
    made.signature.name = name
    for argument in arguments:
        made.signature.input_arg.add(name=argument, type=FLOAT.type)
    for result, tensor in (results or {}).items():
        made.signature.output_arg.add(name=result, type=FLOAT.type)
        made.ret[result] = tensor
    for key, op in (controls or {}).items():
        made.signature.control_output.append(key)
        made.control_ret[key] = op
    for key, value in attrs.items():
        made.attr[key].CopyFrom(value)
    made.node_def.extend(nodes)
    return made


def lowered(definition: Any, *library: Any) -> lowering.Lowered:
    """A function lowered, with a library of functions that it may call, onto "cpu0", "cpu1", ..."""
    known = {other.signature.name: other for other in library}
    return lowering.lower(definition, known.get, lambda count: [f"cpu{i}" for i in range(count)])


def text(definition: Any) -> list[str]:
    """The nodes of a function, each as `name = Op(inputs) @device`, in the order of their names."""
    return sorted(
        f"{node.name} = {node.op}({', '.join(node.input)})"
        + (f" @{node.device}" if node.device else "")
        for node in definition.node_def
    )
