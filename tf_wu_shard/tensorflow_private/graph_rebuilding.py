"""Makes the FuncGraph of a rewritten GraphDef that takes the place of a traced one.

The old FuncGraph is never changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph as func_graph_module
from tensorflow.python.framework import ops
from tensorflow.python.ops import handle_data_util

from tf_wu_shard.tensorflow_private import call_time_inputs, creating_traces
from tf_wu_shard.tensorflow_private.node_import import (
    import_beside,
    import_nodes,
    scopes,
)
from tf_wu_shard.unique_names import UniqueNames

_HANDLE_TYPES = (tf.resource, tf.variant)

# What follows the name of a traced function in that of one made of it.
MADE = "_wu_shard_"


@dataclasses.dataclass(frozen=True)
class NewBody:
    """What a function is to consist of.

    Attributes:
        nodes: The NodeDefs; every input of the function is a Placeholder.
        outputs: Names ("op:index") of the returned tensors.
        control_outputs: Names of the ops that must run.
        functions: What `make_function` made for its ops to call.
    """

    nodes: Sequence[Any]
    outputs: Sequence[str]
    control_outputs: Iterable[str]
    functions: Iterable[Any] = ()


def rebuild(
    graph: Any,
    body: NewBody,
    *,
    new_captures: Mapping[str, Any],
    dropped_captures: Iterable[str],
    owners: Any,
) -> Any:
    """Makes the FuncGraph that takes the place of `graph`.

    Args:
        graph: The old FuncGraph.
        body: What takes its place; every input of the old graph is a Placeholder of the same name,
            and as many tensors are returned, in the order of `graph.outputs`.
        new_captures: For new placeholders, by name, the eager handle to bind. Where the old graph
            captured that handle already, its placeholder takes the new one's place.
        dropped_captures: Placeholders of captures that the new graph does not need.
        owners: Kept alive as long as the new graph.

    Returns:
        A FuncGraph of the same class, with the same inputs but for the captures.

    Raises:
        tf.errors.InvalidArgumentError: If TensorFlow does not accept the nodes.
    """
    named = {node.name: node for node in body.nodes}
    new_captures = _merge_captures(graph, named, new_captures, set(dropped_captures))
    new = type(graph)(graph.name, collections=graph._collections)
    placeholders = {t.op.name: t for t in graph.inputs}
    again = _asked_again(named, placeholders)
    with new.as_default(), ops.name_scope(None):
        # A graph being traced may sit in device scopes; every node names its own device.
        new._device_function_stack = type(new._device_function_stack)()
        for function in (*graph._functions.values(), *body.functions):
            new._add_function_recursive(function)
        inputs = _import_inputs(new, named, {**placeholders, **again}, new_captures)
        import_beside(new, named, inputs)
    _bind(graph, new, inputs, new_captures, set(dropped_captures), again)
    new.outputs = [_tensor(new, name, inputs) for name in body.outputs]
    for old, now in zip(graph.outputs, new.outputs, strict=True):
        # Python knows more of some shapes than TensorFlow infers, such as a TPU program's results.
        now.set_shape(old.shape)
    moved = {id(old): now for old, now in zip(graph.outputs, new.outputs, strict=True)}
    new.structured_outputs = _moved_structure(graph, moved)
    new.control_outputs = [new._get_operation_by_name(name) for name in body.control_outputs]
    new._wu_shard_owners = owners
    creating_traces.carry_over(graph, new)
    return new


def make_function(
    graph: Any,
    body: NewBody,
    arguments: Sequence[str],
    handles: Mapping[str, Any],
) -> Any:
    """Makes a function that an op can call, out of one that ops call already.

    Args:
        graph: The FuncGraph of the old function; it stays as it is.
        body: What it consists of.
        arguments: Names of the arguments, in order; those that are handles are of the old function,
            or in `handles`.
        handles: For arguments that are handles of other variables than before, by name, a tensor
            that knows what stands behind it.

    Returns:
        The function; its FuncGraph is its `graph`.

    Raises:
        tf.errors.InvalidArgumentError: If TensorFlow does not accept the nodes.
    """
    named = {node.name: node for node in body.nodes}
    old = {t.op.name: t for t in graph.inputs if t.op.name in named}
    new = func_graph_module.FuncGraph(f"{traced_name(graph.name)}{MADE}{ops.uid()}")
    with new.as_default(), ops.name_scope(None):
        new._device_function_stack = type(new._device_function_stack)()
        for function in (*graph._functions.values(), *body.functions):
            new._add_function_recursive(function)
        inputs = _import_inputs(new, named, {**old, **_asked_again(named, old)}, handles)
        import_beside(new, named, inputs)
    new.inputs = [_tensor(new, f"{name}:0", inputs) for name in arguments]
    new.outputs = [_tensor(new, name, inputs) for name in body.outputs]
    new.control_outputs = [new._get_operation_by_name(name) for name in body.control_outputs]
    return atomic_function.from_func_graph(new.name, new, {})


def traced_name(name: str) -> str:
    """The name under which a function was traced, of which another may have been made."""
    return name.partition(MADE)[0]


def _tensor(new: Any, name: str, inputs: Mapping[str, Any]) -> Any:
    """A tensor by the name that its nodes gave it; inputs may have got another."""
    op, _, _ = name.partition(":")
    return inputs[op] if op in inputs else new.get_tensor_by_name(name)


def _merge_captures(
    graph: Any, nodes: dict[str, Any], new_captures: Mapping[str, Any], dropped: set[str]
) -> dict[str, Any]:
    """Lets one placeholder stand for each captured handle, as a FuncGraph has it."""
    standing = {id(e): p.op.name for e, p in graph.captures if p.op.name not in dropped}
    fresh: dict[str, Any] = {}
    instead: dict[str, str] = {}
    for name, handle in new_captures.items():
        first = standing.setdefault(id(handle), name)
        if first == name:
            fresh[name] = handle
        else:
            instead[name] = first
            del nodes[name]
    for name, node in nodes.items() if instead else ():
        if not instead.keys().isdisjoint(node.input):
            nodes[name] = tf.compat.v1.NodeDef()
            nodes[name].CopyFrom(node)
            del nodes[name].input[:]
            nodes[name].input.extend(instead.get(text, text) for text in node.input)
    return fresh


def _import_inputs(
    new: Any,
    nodes: Mapping[str, Any],
    old: Mapping[str, Any],
    new_captures: Mapping[str, Any],
) -> dict[str, Any]:
    """Imports the placeholders, with what their handles point to.

    This comes before everything else: shape inference of a read needs the handle's shape. The
    importer would rename a later op "a" once there is an input "a/resource", so inputs whose name
    lies inside another op's get a name of one part.

    Args:
        new: The FuncGraph, the default graph.
        nodes: The NodeDefs by name.
        old: The old graph's placeholders, by the names of what stands for them now.
        new_captures: The handles of new placeholders, by name.

    Returns:
        The inputs' tensors, by the names that the nodes know them by.
    """
    part = tf.compat.v1.GraphDef(versions=new.graph_def_versions)
    wanted = set(old) | set(new_captures)
    taken = UniqueNames(nodes)
    named: dict[str, str] = {}
    for name in (name for name in nodes if name in wanted):
        part.node.append(nodes[name])
        # What was captured under control dependencies names them; an argument waits for nothing.
        del part.node[-1].input[:]
        if any(scope in taken for scope in scopes(name)):
            part.node[-1].name = taken.take(name.replace("/", "."))
        named[name] = part.node[-1].name
    import_nodes(new, part, {})
    inputs = {name: new._get_operation_by_name(named[name]).outputs[0] for name in wanted}
    for name, tensor in inputs.items():
        if tensor.dtype in _HANDLE_TYPES:
            source = new_captures[name] if name in new_captures else old[name]
            handle_data_util.copy_handle_data(source, tensor)
    return inputs


def _asked_again(nodes: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The new placeholders that are filled in beside an old one, by name, each with that one."""
    found = [
        (node.attr[call_time_inputs.CALL_TIME].list, name)
        for name, node in nodes.items()
        if node.op == "Placeholder" and name not in old and call_time_inputs.CALL_TIME in node.attr
    ]
    found.sort(key=lambda one: one[0].i[0])
    return {name: old[like.s[0].decode()] for like, name in found}


def _bind(
    graph: Any,
    new: Any,
    inputs: Mapping[str, Any],
    captures: Mapping[str, Any],
    dropped: set[str],
    again: Mapping[str, Any],
) -> None:
    """Gives the new graph its inputs: arguments, captures by value, deferred captures."""
    old, now = graph._function_captures, new._function_captures
    internal = {id(t) for t in graph.internal_captures}
    deferred = tf.nest.flatten(graph.deferred_internal_captures, expand_composites=True)
    internal |= {id(t) for t in deferred}
    arguments = [inputs[t.op.name] for t in graph.inputs if id(t) not in internal]
    for outside, placeholder in graph.captures:
        if placeholder.op.name not in dropped:
            tensor = inputs[placeholder.op.name]
            kind = old._by_val_tracetype.get(id(outside))
            now.add_or_replace(id(outside), outside, tensor, tracetype=kind)
    for name, outside in captures.items():
        now.add_or_replace(id(outside), outside, inputs[name])
    for key, tensors in old._by_ref_internal.items():
        moved = tf.nest.map_structure(lambda t: inputs[t.op.name], tensors, expand_composites=True)
        outside = old._by_ref_external[key]
        kind = old._by_ref_tracetype[key]
        now.add_or_replace(key, outside, moved, tracetype=kind, is_by_ref=True)
    for name, like in again.items():
        asked = call_time_inputs.another_key(like)
        if isinstance(asked, tuple):
            new.capture_call_time_value(*asked, placeholder=inputs[name])
        else:
            now.add_or_replace(id(asked), asked, inputs[name])
    new.inputs = [
        *arguments,
        *new.internal_captures,
        *tf.nest.flatten(new.deferred_internal_captures, expand_composites=True),
    ]
    _copy_settings(graph, new, inputs)


def _copy_settings(graph: Any, new: Any, inputs: Mapping[str, Any]) -> None:
    """Everything else that Python keeps about a FuncGraph."""
    for name in (
        *("structured_input_signature", "_output_names", "is_control_flow_graph"),
        *("capture_by_value", "seed", "_seed_used", "_saveable", "_saving_errors"),
        *("_weak_outer_graph", "_fallback_outer_graph"),
    ):
        setattr(new, name, getattr(graph, name))
    if hasattr(graph, "collective_manager_ids_used"):
        new.collective_manager_ids_used = graph.collective_manager_ids_used
    new._resource_tensor_inputs.update(
        inputs[t.op.name] for t in graph._resource_tensor_inputs if t.op.name in inputs
    )
    new._weak_variables = graph._weak_variables
    new._watched_variables = graph._watched_variables


def _moved_structure(graph: Any, moved: Mapping[int, Any]) -> Any:
    """`graph.structured_outputs` with every returned tensor replaced by the new graph's.

    A structured output that the old graph captured to return it stands in `graph.outputs` as its
    placeholder; by position, the i-th structured tensor belongs to the i-th output.
    """
    flat = func_graph_module.flatten(graph.structured_outputs)
    returned = iter(graph.outputs)
    now = [None if t is None else moved[id(next(returned))] for t in flat]
    return func_graph_module.pack_sequence_as(graph.structured_outputs, now)
