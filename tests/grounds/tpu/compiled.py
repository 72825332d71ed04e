"""Ops of a TPU program as one CPU compiles them, for those that no kernel of a CPU runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value

# From some values to what is made of them.
Emit = Callable[[Emitter, list[Value]], Sequence[Value]]


def computed(emit: Emit, *operands: np.ndarray) -> list[np.ndarray]:
    """What ops make of float32 operands in a program of one replica."""
    builder = GraphBuilder((), lambda value: tf.float32.as_datatype_enum)
    fed = [Value(f"in{number}") for number in range(len(operands))]
    results = emit(builder.at("", "made"), fed)

    @tf.function(jit_compile=True, autograph=False)
    def program(*tensors: tf.Tensor) -> list[tf.Tensor]:
        graph = tf.compat.v1.get_default_graph()
        made = {value.op: [tensor] for value, tensor in zip(fed, tensors, strict=True)}
        for node in builder.nodes:
            names = [name.partition(":") for name in node.input]
            inputs = [made[name][int(index or 0)] for name, _, index in names]
            attributes = {name: value for name, value in node.attr.items() if name[0] != "_"}
            made[node.name] = graph.create_op(node.op, inputs, attrs=attributes).outputs
        return [tf.identity(made[value.op][value.index]) for value in results]

    return [tensor.numpy() for tensor in program(*map(tf.constant, operands))]
