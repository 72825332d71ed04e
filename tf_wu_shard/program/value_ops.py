"""What an op that looks at a variable through its handle does, done to the variable's value."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tf_wu_shard.dtypes import BOOL, INT32
from tf_wu_shard.graph.nodes import control_inputs, data_inputs
from tf_wu_shard.graph.op import attribute_in
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.grounds.tpu.ops import PROGRAM
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES, is_plain_write

# What writes some rows of a variable, and what writes those of a value. Those of "Nd" name elements
# or slices by as many coordinates as they like, the others rows by one.
_SCATTERS = {
    f"ResourceScatter{nd}{change}": f"TensorScatter{change}"
    for nd in ("", "Nd")
    for change in ("Update", "Add", "Sub", "Min", "Max")
}

_SLICE = ("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")

# The program that a node says it is in goes with it.
_KEPT = (PROGRAM,)


def is_write(op_type: str) -> bool:
    """Whether `on_value` makes the new value of the variable of such an op."""
    return (
        is_plain_write(op_type) or op_type in _SCATTERS or op_type == "ResourceStridedSliceAssign"
    )


def on_value(node: Any, value: str, ref: VariableRef) -> list[Any] | None:
    """The ops that do with a variable's value what an op does with its handle.

    Args:
        node: The NodeDef of an op whose first operand is the handle; never changed.
        value: The value, as a NodeDef names its operands.
        ref: The variable.

    Returns:
        NodeDefs, the last of the same name as `node`; for a write, it is the new value. None for an
        op that does something else to the variable.
    """
    rest = data_inputs(node)[1:]
    controls = control_inputs(node)
    attribute = functools.partial(attribute_in, node.attr)
    if node.op in (READ, "Identity"):
        return [_node(node, "Identity", [value, *controls], T=ref.dtype)]
    if is_plain_write(node.op):
        arithmetic = WRITES[node.op].on_values
        if arithmetic is None:
            return [_node(node, "Identity", [*rest, *controls], T=ref.dtype)]
        return [_node(node, arithmetic, [value, *rest, *controls], T=ref.dtype)]
    if node.op in _SCATTERS:
        return _scattered(node, value, rest, controls, ref)
    if node.op == "ResourceStridedSliceAssign":
        index = attribute("Index").type
        inputs = [value, *rest, *controls]
        update = _node(node, "TensorStridedSliceUpdate", inputs, T=ref.dtype, Index=index)
        for mask in _SLICE:
            update.attr[mask].i = attribute(mask).i
        return [update]
    if node.op == "VarIsInitializedOp":
        return [_constant(node, True, BOOL, controls)]
    if node.op == "VariableShape" and ref.shape is not None:
        return [_constant(node, list(ref.shape), attribute("out_type").type, controls)]
    if node.op == "ResourceGather":
        axis = _constant(node, attribute("batch_dims").i, INT32, controls, "/wu_shard_axis")
        inputs = [value, *rest, axis.name, *controls]
        types = {"Tparams": ref.dtype, "Tindices": attribute("Tindices").type, "Taxis": INT32}
        gather = _node(node, "GatherV2", inputs, **types)
        gather.attr["batch_dims"].i = attribute("batch_dims").i
        return [axis, gather]
    if node.op == "ResourceGatherNd":
        types = {"Tparams": ref.dtype, "Tindices": attribute("Tindices").type}
        return [_node(node, "GatherNd", [value, *rest, *controls], **types)]
    return None


def _scattered(
    node: Any, value: str, rest: list[str], controls: list[str], ref: VariableRef
) -> list[Any]:
    dtype = attribute_in(node.attr, "Tindices").type
    types = {"T": ref.dtype, "Tindices": dtype}
    indices, updates = rest
    if node.op.startswith("ResourceScatterNd"):
        return [_node(node, _SCATTERS[node.op], [value, indices, updates, *controls], **types)]
    last = _constant(node, -1, INT32, controls, "/wu_shard_axis")
    apart = _node(node, "ExpandDims", [indices, last.name], T=dtype, Tdim=INT32)
    apart.name += "/wu_shard_indices"
    inputs = [value, apart.name, updates, *controls]
    return [last, apart, _node(node, _SCATTERS[node.op], inputs, **types)]


def _node(like: Any, op: str, inputs: list[str], **types: int) -> Any:
    node = tf.compat.v1.NodeDef(name=like.name, op=op, input=inputs, device=like.device)
    for key, dtype in types.items():
        node.attr[key].type = dtype
    for key in _KEPT:
        if key in like.attr:
            node.attr[key].CopyFrom(like.attr[key])
    return node


def _constant(like: Any, value: Any, dtype: int, controls: list[str], suffix: str = "") -> Any:
    node = _node(like, "Const", controls, dtype=dtype)
    node.name += suffix
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.as_dtype(dtype)))
    return node
