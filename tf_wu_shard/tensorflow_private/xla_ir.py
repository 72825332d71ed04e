"""The HLO of a function, as TensorFlow's bridge to XLA makes it; nothing is run.

A variable's value is not needed for that, only its shape, so each is stood in for by memory that is
reserved and never touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph, importer, ops
from tensorflow.python.ops import handle_data_util, resource_variable_ops

# The runtime knows functions by name, so each gets one of its own.
_number = itertools.count()

_COMPILED_BY_XLA = {"_XlaMustCompile": True}


def hlo_of(
    graph_def: Any,
    *,
    tensors: Mapping[str, tf.TensorSpec],
    variables: Mapping[str, tf.TensorSpec],
    outputs: Sequence[str],
    effects: Sequence[str],
) -> bytes:
    """Lowers a function.

    Args:
        graph_def: Its nodes, a Placeholder for each tensor and variable among them, and the
            functions they call.
        tensors: The Placeholders that are tensors, with their static shapes.
        variables: The Placeholders that are handles of variables, with those of their values.
        outputs: What it returns, "node:index" each.
        effects: Names of nodes that must run though nobody reads their result.

    Returns:
        A serialized HloModuleProto, not optimized. Its parameters are the tensors and then the
        variables, in order; its result is a tuple of the outputs and then the new value of each
        variable that is written, in order of the variables.

    Raises:
        tf.errors.OpError: An op has no XLA kernel, or something that must be a constant is none.
    """
    name = f"replica_step_{next(_number)}"
    graph_def = _with_fresh_functions(graph_def, f"_of_{name}")
    with tf.init_scope():
        handles = [_reserved(spec) for spec in variables.values()]
    graph = func_graph.FuncGraph("replica_step")
    with graph.as_default(), ops.name_scope(None):
        for function in graph_def.library.function:
            context.context().add_function_def(function)
        inputs = _import_inputs(graph_def, variables, handles)
        rest = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
        rest.node.extend(n for n in graph_def.node if n.name not in inputs)
        importer.import_graph_def(rest, name="", input_map=inputs)
    graph.inputs = [inputs[name] for name in (*tensors, *variables)]
    graph.outputs = [graph.get_tensor_by_name(name) for name in outputs]
    graph.control_outputs = [graph.get_operation_by_name(name) for name in effects]
    function = atomic_function.from_func_graph(name, graph, _COMPILED_BY_XLA)
    context.ensure_initialized()
    module: bytes = context.context().get_compiler_ir(
        device_name="/job:localhost/replica:0/task:0/device:CPU:0",
        platform_name=None,
        function_name=function.name,
        flat_args=list(tensors.values()),
        captured_inputs=[variable.handle for variable in handles],
        stage="hlo_serialized",
    )
    return module


def _with_fresh_functions(graph_def: Any, suffix: str) -> Any:
    """A copy whose functions have names that the runtime does not know yet.

    It knows those of the traced graph as they were traced, and would take them instead.
    """
    new = tf.compat.v1.GraphDef()
    new.CopyFrom(graph_def)
    names = {function.signature.name for function in new.library.function}
    for function in new.library.function:
        function.signature.name += suffix
    for nodes in (new.node, *(function.node_def for function in new.library.function)):
        for node in nodes:
            for attribute in node.attr.values():
                called = [attribute.func] if attribute.HasField("func") else attribute.list.func
                for function in called:
                    if function.name in names:
                        function.name += suffix
    del new.library.gradient[:]
    return new


def _reserved(spec: tf.TensorSpec) -> Any:
    """A variable on memory that is not written."""
    variable = resource_variable_ops.UninitializedVariable(shape=spec.shape, dtype=spec.dtype)
    variable.assign(tf.raw_ops.Empty(shape=spec.shape.as_list(), dtype=spec.dtype, init=False))
    return variable


def _import_inputs(
    graph_def: Any, variables: Mapping[str, tf.TensorSpec], handles: Sequence[Any]
) -> dict[str, Any]:
    """Placeholders come first: shape inference of a read needs the shape behind its handle."""
    inputs: dict[str, Any] = {}
    behind = dict(zip(variables, handles, strict=True))
    for node in graph_def.node:
        if node.op == "Placeholder":
            shape = tf.TensorShape(node.attr["shape"].shape)
            dtype = tf.as_dtype(node.attr["dtype"].type)
            inputs[node.name] = tf.compat.v1.placeholder(dtype, shape, name="argument")
            if node.name in behind:
                handle_data_util.copy_handle_data(behind[node.name].handle, inputs[node.name])
    return inputs
