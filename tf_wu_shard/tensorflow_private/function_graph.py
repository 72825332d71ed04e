"""What a traced function's graph holds, asked of the FuncGraph that Python keeps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.framework import func_graph as func_graph_module
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import control_flow_v2_func_graphs, handle_data_util

from tf_wu_shard.colocation import rename_wishes

_SHAPE_TYPES = (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum)


def captured_handles(graph: Any) -> list[tuple[Any, Any]]:
    """The resource handles that a FuncGraph captured, `(outside, placeholder)` each."""
    return [(e, p) for e, p in graph.captures if p.dtype is tf.resource]


def captured_values(graph: Any) -> dict[str, tuple[Any, str, int]]:
    """The values that a FuncGraph captured of those around it.

    Returns:
        By the names of its placeholders, the FuncGraph that has the value, the op and the number
        of its output.
    """
    return {
        placeholder.op.name: (outside.graph, outside.op.name, outside.value_index)
        for outside, placeholder in graph.captures
        if not isinstance(outside, tf.__internal__.EagerTensor)
        and isinstance(outside.graph, func_graph_module.FuncGraph)
    }


def captured_constants(graph: Any) -> dict[str, Any]:
    """The TensorProtos of constants that a FuncGraph captured, by the names of its placeholders.

    A branch takes the shape of a sparse gradient so. Whatever is captured through several graphs
    is followed to the one that has it.
    """
    found = {}
    for outside, placeholder in graph.captures:
        held = outside
        while not isinstance(held, tf.__internal__.EagerTensor) and held.op.type == "Placeholder":
            inside = {id(p): e for e, p in getattr(held.graph, "captures", ())}
            if id(held) not in inside:
                break
            held = inside[id(held)]
        if not isinstance(held, tf.__internal__.EagerTensor) and held.op.type == "Const":
            found[placeholder.op.name] = held.op.get_attr("value")
    return found


def inputs_by_value(graph: Any, constants: Container[str]) -> tuple[str, ...]:
    """Names of the placeholders of a FuncGraph that stand for values and are no constants.

    Its arguments are, and tensors that it captured.

    Args:
        graph: The FuncGraph.
        constants: Names of the placeholders that are, see `captured_constants`.
    """
    return tuple(
        placeholder.op.name
        for placeholder in graph.inputs
        if placeholder.dtype not in (tf.resource, tf.variant)
        and placeholder.op.name not in constants
    )


def is_branch_or_body(graph: Any) -> bool:
    """Whether a FuncGraph belongs to a `tf.cond` or `tf.while_loop`.

    Once the function around one is gone, a plain Graph stands around it: no such thing.
    """
    return bool(getattr(graph, "is_control_flow_graph", False))


def is_nested(graph: Any) -> bool:
    """Whether a FuncGraph was traced as a part of another's trace."""
    return isinstance(graph.outer_graph, func_graph_module.FuncGraph)


def is_branch(graph: Any) -> bool:
    """Whether a FuncGraph belongs to a `tf.cond` or `tf.switch_case`."""
    return isinstance(graph, control_flow_v2_func_graphs.CondBranchFuncGraph)


def is_within(graph: Any, kind: Callable[[Any], bool]) -> bool:
    """Whether a FuncGraph, or one in whose trace it is traced, at any depth, is of some kind."""
    while not kind(graph):
        if not is_nested(graph):
            return False
        graph = graph.outer_graph
    return True


def is_of_a_replica() -> bool:
    """Whether what is being traced is what one replica does, and not what is done for all."""
    return tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()


def is_part_of(inner: Any, graph: Any) -> bool:
    """Whether a FuncGraph is a branch or a body of another, at any depth: run by that one alone."""
    while is_branch_or_body(inner):
        inner = inner.outer_graph
        if inner is graph:
            return True
    return False


def never_runs(inner: Any, tracing: Any) -> bool:
    """Whether a FuncGraph is a branch or body in a graph that nothing can run.

    Keras calls layers in a FuncGraph of its own to learn shapes, of which no function is made: it
    has no results, and no ops that must run. Nor has a graph yet that is being traced; it will.

    Args:
        inner: The FuncGraph.
        tracing: The FuncGraph that is being traced, perhaps in the trace of others.
    """
    root = function_of(inner)
    if not isinstance(root, func_graph_module.FuncGraph) or root.outputs or root.control_outputs:
        return False
    while tracing is not None and tracing is not root:
        tracing = getattr(tracing, "outer_graph", None)
    return tracing is None


def function_of(graph: Any) -> Any:
    """The FuncGraph of the function that a FuncGraph is of, or is a branch or body of."""
    while isinstance(graph, func_graph_module.FuncGraph) and is_branch_or_body(graph):
        graph = graph.outer_graph
    return graph


def title(graph: Any) -> str:
    """What to call a FuncGraph: its name, that of a branch or body after its function's."""
    names = [str(graph.name)]
    while is_branch_or_body(graph) and graph.outer_graph is not None:
        graph = graph.outer_graph
        if isinstance(graph, func_graph_module.FuncGraph):
            names.append(str(graph.name))
    return "/".join(reversed(names))


def may_write(graph: Any, op_types: frozenset[str]) -> bool:
    """Whether a FuncGraph may hold an op of types that all have an effect.

    Automatic control dependencies make every op with an effect a control output; where they were
    off nothing is known.
    """
    return not graph.control_outputs or any(op.type in op_types for op in graph.control_outputs)


def op_types(graph: Any) -> set[str]:
    """Types of all ops of a FuncGraph, its branches and bodies apart."""
    return {op.type for op in graph.get_operations()}


def taken_by(handles: Iterable[tuple[Any, Any]], op_types: frozenset[str]) -> Iterator[Any]:
    """Those of captured handles that ops of some types take, as they are outside."""
    for outside, placeholder in handles:
        if any(op.type in op_types for op in placeholder.consumers()):
            yield outside


def takers(
    handles: Iterable[tuple[Any, Any]], op_types: frozenset[str], of: Callable[[Any, Any], bool]
) -> tuple[str, ...]:
    """Names of the ops of some types that take captured handles.

    Args:
        handles: The handles, `(outside, placeholder)` each.
        op_types: The types.
        of: Which of them count, asked of a handle as it is outside and of the op.
    """
    found = (
        op.name
        for outside, placeholder in handles
        for op in placeholder.consumers()
        if op.type in op_types and of(outside, op)
    )
    return tuple(dict.fromkeys(found))


def handed_handles(graph: Any) -> list[Any]:
    """The resource handles that a FuncGraph is handed as arguments, which it has not captured."""
    captured = {id(placeholder) for placeholder in graph.internal_captures}
    return [t for t in graph.inputs if t.dtype is tf.resource and id(t) not in captured]


def consumer_types(placeholder: Any) -> list[str]:
    """Types of the ops that take a captured handle."""
    return [op.type for op in placeholder.consumers()]


def consumers(placeholder: Any) -> list[tuple[Any, int]]:
    """The NodeDefs that take a captured handle, each with the number of the operand."""
    return [
        (op.node_def, slot)
        for op in placeholder.consumers()
        for slot, taken in enumerate(op.inputs)
        if taken is placeholder
    ]


def op_def(op_type: str) -> Any | None:
    """The OpDef of an op type, or None where no op of this name is registered."""
    return op_def_registry.get(op_type)


def is_replica_local(handle: Any) -> bool:
    """Whether a handle belongs to a variable that each replica writes on its own (ON_READ)."""
    reference = getattr(handle, "_distributed_container", None)
    variable = reference() if reference is not None else None
    return isinstance(variable, values.DistributedVariable) and not isinstance(
        variable, values.MirroredVariable
    )


def shapes_given(
    graph: Any, constants: Mapping[str, Any]
) -> Callable[[str, int], tuple[int | None, ...] | None]:
    """The static shapes of a FuncGraph's tensors, as far as they follow from some of its inputs.

    A dense gradient that a branch makes of a sparse one has a shape that it takes from outside.

    Args:
        graph: The FuncGraph.
        constants: TensorProtos of inputs that are constants outside, by the placeholders' names.

    Returns:
        A function from an op's name and the number of an output to its dimensions, as
        `static_shape`. Shapes are inferred again at the first one that has an open dimension.
    """
    of_shapes = {n: t for n, t in constants.items() if t.dtype in _SHAPE_TYPES}

    @functools.cache
    def inferred() -> Any:
        graph_def = graph.as_graph_def()
        for node in graph_def.node:
            # Nothing is run here; of what is captured it may wish to be with the op outside.
            rename_wishes(node, lambda name: None)
            if node.name in of_shapes:
                node.op = "Const"
                del node.attr["shape"]
                node.attr["value"].tensor.CopyFrom(of_shapes[node.name])
            elif node.op == "ReadVariableOp":
                # Only the FuncGraph knows the shape of the variable behind a handle.
                read = graph._get_operation_by_name(node.name).outputs[0]
                node.op = "Placeholder"
                node.attr["shape"].shape.CopyFrom(read.shape.as_proto())
                del node.input[:]
        with tf.Graph().as_default() as found:
            tf.graph_util.import_graph_def(graph_def, name="")
        return found

    def shape_of(op: str, output: int) -> tuple[int | None, ...] | None:
        known = static_shape(graph, op, output)
        if of_shapes and (known is None or None in known):
            return static_shape(inferred(), op, output)
        return known

    return shape_of


def static_shape(graph: Any, op: str, output: int) -> tuple[int | None, ...] | None:
    """The dimensions of an op's output as traced, None for open ones; None for an open rank."""
    shape = graph._get_operation_by_name(op).outputs[output].shape
    return None if shape.rank is None else tuple(shape.as_list())


def num_results(graph: Any, op: str) -> int:
    """How many results an op has."""
    return len(graph._get_operation_by_name(op).outputs)


def handle_shape_and_type(placeholder: Any) -> tuple[tuple[int, ...] | None, int]:
    """The static shape and DataType number behind a resource placeholder."""
    data = handle_data_util.get_handle_data(placeholder)
    if data is None or not data.is_set or not data.shape_and_type:
        return None, 0
    first = data.shape_and_type[0]
    dims = tuple(d.size for d in first.shape.dim)
    known = not first.shape.unknown_rank and all(d >= 0 for d in dims)
    return (dims if known else None), first.dtype


def inner_graph(graph: Any, name: str) -> Any | None:
    """The FuncGraph of a function that ops of `graph` may call, or None where it was not traced."""
    function = graph._functions.get(name)
    found = function.graph if function is not None else None
    return found if isinstance(found, func_graph_module.FuncGraph) else None


def graphs_of(graph: Any, names: Iterable[str], made: Mapping[str, Any]) -> list[Any]:
    """The FuncGraphs of functions, as far as they were traced.

    Args:
        graph: The FuncGraph whose ops may call them.
        names: Their names.
        made: What was made since the trace for the ops to call, by name.
    """
    known = (made.get(name) or graph._functions.get(name) for name in names)
    found = (function._cached_graph for function in known if function is not None)
    return [own for own in found if own is not None]
