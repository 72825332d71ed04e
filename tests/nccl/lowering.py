"""What NCCL does, done by kernels that CPUs have: for tests of a program that has no GPU to run on.

CollectiveReduceScatterV2 has no kernel for CPUs. Member r of N gets elements [rL/N, (r+1)L/N) of
the sum of vectors of L elements, as TensorFlow's op says. Here every member sends each other one
its part, and adds up what it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_wu_shard.tensorflow_private.call_time_inputs import CALL_TIME


def runnable(nodes: Iterable[Any]) -> list[Any]:
    """Nodes that a graph on logical CPUs can run, outside of a function that fills in inputs.

    Args:
        nodes: NodeDefs; inputs that are numbers of collectives become constants.
    """
    found: list[Any] = []
    for node in nodes:
        if CALL_TIME in node.attr:
            found.append(_constant(node.name, 100 + node.attr[CALL_TIME].list.i[0], node.device))
        else:
            found.append(node)
    return without_reduce_scatters(found)


def without_reduce_scatters(nodes: Iterable[Any]) -> list[Any]:
    """Nodes with every reduce-scatter by ops that CPUs have kernels for.

    Args:
        nodes: NodeDefs.
    """
    found: list[Any] = []
    for node in nodes:
        found += _by_parts(node) if node.op == "CollectiveReduceScatterV2" else [node]
    return found


def _by_parts(node: Any) -> list[Any]:
    operand, size = node.input[:2]
    shape = tf.compat.v1.NodeDef(name=f"{node.name}/shape", op="Pack", device=node.device)
    rest = _constant(f"{node.name}/rest", -1, node.device)
    shape.input.extend([size, rest.name])
    shape.attr["N"].i = 2
    shape.attr["T"].type = tf.int32.as_datatype_enum
    rows = tf.compat.v1.NodeDef(
        name=f"{node.name}/rows", op="Reshape", device=node.device, input=[operand, shape.name]
    )
    rows.attr["T"].CopyFrom(node.attr["T"])
    exchange = tf.compat.v1.NodeDef(
        name=f"{node.name}/exchange",
        op="CollectiveAllToAllV2",
        device=node.device,
        input=[rows.name, *node.input[1:]],
    )
    for name in ("T", "communication_hint", "timeout_seconds", "Nordering_token", "is_stateless"):
        exchange.attr[name].CopyFrom(node.attr[name])
    axis = _constant(f"{node.name}/axis", 0, node.device)
    total = tf.compat.v1.NodeDef(
        name=node.name, op="Sum", device=node.device, input=[exchange.name, axis.name]
    )
    total.attr["T"].CopyFrom(node.attr["T"])
    total.attr["Tidx"].type = tf.int32.as_datatype_enum
    return [rest, shape, rows, exchange, axis, total]


def _constant(name: str, value: int, device: str) -> Any:
    node = tf.compat.v1.NodeDef(name=name, op="Const", device=device)
    node.attr["dtype"].type = tf.int32.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
    return node
