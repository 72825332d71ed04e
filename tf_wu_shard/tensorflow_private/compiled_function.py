"""Makes functions that XLA compiles out of NodeDefs."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph as func_graph_module
from tensorflow.python.framework import ops

from tf_wu_shard.tensorflow_private.node_import import import_nodes

# By TensorFlow's context and their names, as long as they are in use.
_COMPILED: weakref.WeakValueDictionary[tuple[Any, str], Any] = weakref.WeakValueDictionary()


def make_compiled_function(
    name: str,
    nodes: Sequence[Any],
    arguments: Sequence[str],
    outputs: Sequence[str],
    effects: Sequence[str],
) -> Any:
    """Makes a function that XLA compiles when it is first called.

    Args:
        name: Its name; the runtime knows functions by it, so equal names are equal functions.
        nodes: Its NodeDefs; each argument is a Placeholder.
        arguments: Names of the arguments, in order.
        outputs: Names ("op:index") of the returned tensors.
        effects: Names of the ops that must run.

    Raises:
        tf.errors.InvalidArgumentError: If TensorFlow does not accept the nodes.
    """
    key = (context.context().function_scope_id, name)
    function = _COMPILED.get(key)
    if function is None:
        graph = func_graph_module.FuncGraph(name)
        with graph.as_default(), ops.name_scope(None):
            import_nodes(graph, tf.compat.v1.GraphDef(node=nodes), {})
        graph.inputs = [graph.get_tensor_by_name(f"{argument}:0") for argument in arguments]
        graph.outputs = [graph.get_tensor_by_name(output) for output in outputs]
        graph.control_outputs = [graph.get_operation_by_name(effect) for effect in effects]
        attributes = {"_XlaMustCompile": True}
        function = _COMPILED[key] = atomic_function.from_func_graph(name, graph, attributes)
    return function
