"""Shape inference over graphs that TensorFlow traced, of which it is told a part of the shapes."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tf_wu_shard.graph.dimensions import Dims
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.shape_inference import ShapeInference
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.tensorflow_private import function_graph


def inference_of(graph: tf.Graph, stated: Callable[[tf.Tensor], Dims | None]) -> ShapeInference:
    """An inference that has nothing to go by but constants and what is stated of tensors."""
    view = GraphView(
        graph.as_graph_def(),
        variables={},
        outputs=(),
        control_outputs=(),
        op_def=function_graph.op_def,
    )
    return ShapeInference(
        view.ops.__getitem__,
        lambda value: stated(graph.get_tensor_by_name(_name(value))),
        view.constant,
    )


def _name(value: Value) -> str:
    return f"{value.op}:{value.index}"


def static(tensor: tf.Tensor) -> Dims | None:
    """What TensorFlow knows of a tensor's shape."""
    return None if tensor.shape.rank is None else tuple(tensor.shape)


def is_compatible(found: Dims | None, whole: tuple[int, ...]) -> bool:
    """Whether nothing that was found is wrong."""
    if found is None:
        return True
    return len(found) == len(whole) and all(
        f is None or f == w for f, w in zip(found, whole, strict=True)
    )
