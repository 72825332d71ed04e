"""Imports NodeDefs into a FuncGraph under their own names, beside the inputs that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import c_api_util, importer, ops

from tf_wu_shard.colocation import rename_wishes, wishes


def import_beside(new: Any, nodes: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """Imports everything but the inputs of a graph, for which nothing has to wait.

    Args:
        new: The FuncGraph, the default graph, which has its inputs.
        nodes: The NodeDefs by name, those of the inputs among them.
        inputs: The inputs' tensors, by the names that the nodes know them by.

    Raises:
        tf.errors.InvalidArgumentError: If TensorFlow does not accept the nodes.
    """
    beside = [node for name, node in nodes.items() if name not in inputs]
    rest = tf.compat.v1.GraphDef(versions=new.graph_def_versions, node=beside)
    waits = {f"^{name}" for name in inputs}
    near_inputs: list[Any] = []
    for place, node in enumerate(beside):
        if not waits.isdisjoint(node.input):
            rest.node[place].input[:] = [text for text in node.input if text not in waits]
        wished = wishes(node)
        if not wished:
            continue
        if not inputs.keys().isdisjoint(wished):
            near_inputs.append(node)
        # The importer takes no other than those among the nodes that it imports now.
        rename_wishes(
            rest.node[place], lambda wish: wish if wish in nodes and wish not in inputs else None
        )
    import_nodes(new, rest, {f"{name}:0": tensor for name, tensor in inputs.items()})
    for node in near_inputs:
        near = tf.compat.v1.NodeDef()
        near.CopyFrom(node)
        rename_wishes(near, lambda wish: _name_now(wish, nodes, inputs))
        new.get_operation_by_name(node.name)._set_attr("_class", near.attr["_class"])


def _name_now(name: str, nodes: Mapping[str, Any], inputs: Mapping[str, Any]) -> str | None:
    """The name that an op was imported under, which is another for some inputs, or None."""
    if name in inputs:
        return str(inputs[name].op.name)
    return name if name in nodes else None


def import_nodes(new: Any, part: Any, input_map: Mapping[str, Any]) -> None:
    """Imports nodes under their own names, each on the device it names.

    `importer.import_graph_def` would run every one of them through the graph's stack of device
    functions, which takes most of its time.

    Args:
        new: The FuncGraph, the default graph.
        part: A GraphDef of the nodes.
        input_map: The tensors of the graph that stand for inputs, by their names ("op:index").

    Raises:
        tf.errors.InvalidArgumentError: If TensorFlow does not accept the nodes.
    """
    options = c_api_util.ScopedTFImportGraphDefOptions()
    importer._PopulateTFImportGraphDefOptions(options.options, "", input_map, None, False)
    buffer = c_api.TF_NewBufferFromString(part.SerializeToString())
    try:
        with new._mutation_lock(), new._c_graph.get() as c_graph:
            results = c_api.TF_GraphImportGraphDefWithResults(c_graph, buffer, options.options)
            c_api_util.ScopedTFImportGraphDefResults(results)
        # What Graph._add_new_tf_operations does beyond this concerns scopes that are not open here
        # (attributes, kernel labels, colocation, containers) and TensorFlow 1 loops.
        made = [ops.Operation._from_c_op(operation, new) for operation in new.new_operations()]
        new._names_in_use |= {op.name.lower(): 1 for op in made}
    finally:
        c_api.TF_DeleteBuffer(buffer)


def scopes(name: str) -> list[str]:
    """The scopes that a name lies in: "a" and "a/b" for "a/b/c"."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
