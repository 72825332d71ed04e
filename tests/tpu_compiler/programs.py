"""Small replica bodies written by hand, with the collectives that a rewritten step may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.tpu_compiler.body import Argument, ReplicaBody

FLOAT = tf.float32.as_datatype_enum
INT = tf.int32.as_datatype_enum
RESOURCE = tf.resource.as_datatype_enum


class Program:
    """Collects the nodes of a body."""

    def __init__(self) -> None:
        self.builder = GraphBuilder(())
        self.at = self.builder.at("", "")
        self.arguments: list[Argument] = []
        self.effects: list[str] = []

    def tensor(self, name: str, shape: tuple[int, ...]) -> Value:
        self.arguments.append(Argument(name, FLOAT, shape, is_variable=False))
        return self._placeholder(name, FLOAT, shape)

    def variable(self, name: str, shape: tuple[int, ...]) -> Value:
        self.arguments.append(Argument(name, FLOAT, shape, is_variable=True))
        return self._placeholder(name, RESOURCE, ())

    def op(self, op_type: str, *inputs: Value, **attributes: str) -> Value:
        return self.at.op(op_type, inputs, op_type, **attributes)

    def read(self, handle: Value) -> Value:
        return self.at.op("ReadVariableOp", [handle], "read", dtype=FLOAT)

    def subtract_from(self, handle: Value, delta: Value) -> None:
        node = self.at.op("AssignSubVariableOp", [handle, delta], "sub")
        self.effects.append(node.op)

    def assign(self, handle: Value, value: Value) -> None:
        node = self.at.op("AssignVariableOp", [handle, value], "assign")
        self.effects.append(node.op)

    def groups(self, groups: Sequence[Sequence[int]]) -> Value:
        node = tf.compat.v1.NodeDef(name=self.builder.unique("groups"), op="Const")
        node.attr["dtype"].type = INT
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(groups, np.int32)))
        return self.builder.add(node)

    def reduce_scatter(self, value: Value, groups: Sequence[Sequence[int]]) -> Value:
        dimension = self.at.constant(0)
        return self.op("XlaReduceScatter", value, self.groups(groups), dimension, reduce_op="Add")

    def all_gather(
        self, value: Value, shape: tuple[int, ...], groups: Sequence[Sequence[int]]
    ) -> Value:
        taken = "x".join(map(str, shape)) + "xf32"
        given = f"{shape[0] * len(groups[0])}x" + "x".join(map(str, shape[1:])) + "xf32"
        lines = [list(group) for group in groups]
        text = (
            f"module {{ func.func public @main(%a: tensor<{taken}>) -> tensor<{given}> {{\n"
            '%r = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups ='
            f" dense<{lines}> : tensor<{len(lines)}x{len(lines[0])}xi64>}}"
            f" : (tensor<{taken}>) -> tensor<{given}>\n return %r : tensor<{given}> }} }}"
        )
        node = tf.compat.v1.NodeDef(
            name=self.builder.unique("gather"), op="XlaCallModule", input=[str(value)]
        )
        node.attr["version"].i = 10
        node.attr["module"].s = text.encode()
        node.attr["Tin"].list.type.append(FLOAT)
        node.attr["Tout"].list.type.append(FLOAT)
        node.attr["Sout"].list.shape.add().CopyFrom(
            tf.TensorShape((shape[0] * len(groups[0]), *shape[1:])).as_proto()
        )
        node.attr["platforms"].list.s.append(b"TPU")
        node.attr["disabled_checks"].list.s.append(b"platform")
        self.builder.add(node)
        return Value(node.name)

    def body(self, *outputs: Value, num_replicas: int) -> ReplicaBody:
        graph_def: Any = tf.compat.v1.GraphDef()
        graph_def.versions.CopyFrom(tf.Graph().as_graph_def().versions)
        graph_def.node.extend(self.builder.nodes)
        return ReplicaBody(
            graph_def,
            tuple(sorted(self.arguments, key=lambda argument: argument.is_variable)),
            tuple(f"{value.op}:{value.index}" for value in outputs),
            tuple(self.effects),
            num_replicas,
        )

    def _placeholder(self, name: str, dtype: int, shape: tuple[int, ...]) -> Value:
        node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
        node.attr["dtype"].type = dtype
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
        return self.builder.add(node)


def axis_groups(coordinates: Sequence[tuple[int, ...]], axis: int) -> list[list[int]]:
    """Replicas that differ along one axis of the torus only, in order along it."""
    lines: dict[tuple[int, ...], list[int]] = {}
    for replica in sorted(range(len(coordinates)), key=lambda r: coordinates[r][axis]):
        rest = tuple(c for a, c in enumerate(coordinates[replica]) if a != axis)
        lines.setdefault(rest, []).append(replica)
    return sorted(lines.values())


def sharded_descent(
    rows: int, columns: int, stages: Sequence[Sequence[Sequence[int]]], num_replicas: int
) -> ReplicaBody:
    """w -= gradient summed over all replicas, each replica summing and scaling its own rows.

    Args:
        rows: Of the weight.
        columns: Of the weight.
        stages: For each reduce-scatter its groups; gathered in the opposite order.
        num_replicas: How many replicas run it.
    """
    program = Program()
    gradient = program.tensor("gradient", (rows, columns))
    weight = program.variable("weight", (rows, columns))
    value = gradient
    for groups in stages:
        value = program.reduce_scatter(value, groups)
    value = program.op("Mul", value, value)
    own = rows // int(np.prod([len(groups[0]) for groups in stages]))
    for groups in reversed(stages):
        value = program.all_gather(value, (own, columns), groups)
        own *= len(groups[0])
    program.subtract_from(weight, value)
    return program.body(num_replicas=num_replicas)
