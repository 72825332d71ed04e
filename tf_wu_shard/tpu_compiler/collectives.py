"""The collective ops of a TPU graph as ops that TensorFlow can turn into HLO on any machine.

CrossReplicaSum, AllToAll and CollectivePermute have a kernel on TPU hosts only. Their XLA forms
lower to the very same HLO: `XlaAllReduce`, and a StableHLO module of one operation where there is
no such op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.nodes import control_inputs

# XLA's versions of `XlaCallModule` from here on run a StableHLO module for a list of platforms.
_CALL_MODULE_VERSION = 10

_MLIR_TYPES = {
    tf.bfloat16: "bf16",
    tf.bool: "i1",
    tf.float16: "f16",
    tf.float32: "f32",
    tf.float64: "f64",
    tf.int8: "i8",
    tf.int16: "i16",
    tf.int32: "i32",
    tf.int64: "i64",
    tf.uint8: "ui8",
    tf.uint16: "ui16",
    tf.uint32: "ui32",
    tf.uint64: "ui64",
}


class CollectiveError(WuShardError, NotImplementedError):
    """A collective that has no form outside a TPU host."""


def with_xla_forms(nodes: Iterable[Any], shapes: Mapping[str, tuple[int, ...]]) -> list[Any]:
    """Replaces the collectives among nodes.

    Args:
        nodes: The NodeDefs of a graph or of a function.
        shapes: For each AllToAll and CollectivePermute, by name, the shape of its operand.

    Returns:
        As many nodes, with the same names and outputs.

    Raises:
        CollectiveError: The groups of a collective, or its operand's shape, are not constant.
    """
    nodes = list(nodes)
    constants = {n.name: tf.make_ndarray(n.attr["value"].tensor) for n in nodes if _is_groups(n)}
    replaced = []
    for node in nodes:
        if node.op == "CrossReplicaSum":
            node = _sum(node)
        elif node.op in _CALLED:
            groups = constants.get(node.input[1].partition(":")[0])
            if groups is None or node.name not in shapes:
                missing = "groups" if groups is None else "shape"
                raise CollectiveError(f"{node.name} ({node.op}): its {missing} must be constant")
            node = _call(node, _CALLED[node.op](node, shapes[node.name], groups))
        replaced.append(node)
    return replaced


def _is_groups(node: Any) -> bool:
    return node.op == "Const" and node.attr["dtype"].type == tf.int32.as_datatype_enum


def _sum(node: Any) -> Any:
    """An all-reduce; TensorFlow's groups are XLA's, one a row."""
    new = type(node)(name=node.name, op="XlaAllReduce", device=node.device, input=node.input)
    new.attr["T"].CopyFrom(node.attr["T"])
    new.attr["reduce_op"].s = b"Add"
    new.attr["mode"].s = b"CrossReplica"
    return new


def _call(node: Any, module: tuple[str, tuple[int, ...]]) -> Any:
    """A node that runs a StableHLO module on the collective's operand."""
    text, shape = module
    controls = control_inputs(node)
    inputs = [node.input[0], *controls]
    new = type(node)(name=node.name, op="XlaCallModule", device=node.device, input=inputs)
    new.attr["version"].i = _CALL_MODULE_VERSION
    new.attr["module"].s = text.encode()
    new.attr["Tin"].list.type.append(node.attr["T"].type)
    new.attr["Tout"].list.type.append(node.attr["T"].type)
    new.attr["Sout"].list.shape.add().CopyFrom(tf.TensorShape(shape).as_proto())
    new.attr["platforms"].list.s.append(b"TPU")
    new.attr["disabled_checks"].list.s.append(b"platform")
    new.attr["function_list"].list.SetInParent()
    new.attr["dim_args_spec"].list.SetInParent()
    return new


def _all_to_all(
    node: Any, shape: tuple[int, ...], groups: np.ndarray
) -> tuple[str, tuple[int, ...]]:
    split, concat = node.attr["split_dimension"].i, node.attr["concat_dimension"].i
    count = node.attr["split_count"].i
    result = list(shape)
    result[split] //= count
    result[concat] *= count
    attributes = (
        f"split_dimension = {split} : i64, concat_dimension = {concat} : i64,"
        f" split_count = {count} : i64, replica_groups = {_matrix(groups)}"
    )
    return _module("all_to_all", attributes, node, shape, tuple(result)), tuple(result)


def _permute(node: Any, shape: tuple[int, ...], pairs: np.ndarray) -> tuple[str, tuple[int, ...]]:
    attributes = f"source_target_pairs = {_matrix(pairs)}"
    return _module("collective_permute", attributes, node, shape, shape), shape


_CALLED = {"AllToAll": _all_to_all, "CollectivePermute": _permute}

# Those whose XLA form names the shape of the operand, and all that have one.
SHAPED = frozenset(_CALLED)
COLLECTIVES = SHAPED | {"CrossReplicaSum"}


def _matrix(values: np.ndarray) -> str:
    rows, columns = values.shape
    return f"dense<{values.tolist()}> : tensor<{rows}x{columns}xi64>"


def _module(
    operation: str, attributes: str, node: Any, shape: tuple[int, ...], result: tuple[int, ...]
) -> str:
    taken, given = (_mlir_type(node, of) for of in (shape, result))
    return (
        "module {\n"
        f"  func.func public @main(%operand: {taken}) -> {given} {{\n"
        f'    %result = "stablehlo.{operation}"(%operand) {{{attributes}}}'
        f" : ({taken}) -> {given}\n"
        f"    return %result : {given}\n"
        "  }\n"
        "}\n"
    )


def _mlir_type(node: Any, shape: tuple[int, ...]) -> str:
    dtype = tf.as_dtype(node.attr["T"].type)
    if dtype not in _MLIR_TYPES:
        raise CollectiveError(f"{node.name} ({node.op}): there is no form for {dtype.name}")
    return f"tensor<{''.join(f'{size}x' for size in shape)}{_MLIR_TYPES[dtype]}>"
