"""A `GraphView` of the TPU program in a GraphDef, which is all that the stages look at.

What lies outside of the program runs once, on the host, and enters it as values that all replicas
share; so in the view it is opaque. The ops of the program, and the constants, variables and
TPUReplicatedInputs beside it, stand there under their own names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import GraphDefError
from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.calls import all_named_by, is_call
from tf_wu_shard.graph.nodes import copy_of, sources_of
from tf_wu_shard.graph.op import Value, attribute_in, parse_value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.graph_def.program import Program
from tf_wu_shard.grounds.tpu.ops import REPLICATED_INPUT, SUM
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import is_fused_update
from tf_wu_shard.tensorflow_private import function_graph

# The op type, known to no one else, of what the host computes.
_OUTSIDE = "WuShardOutside"

HANDLE = "VarHandleOp"


@dataclasses.dataclass(frozen=True)
class ProgramView:
    """A TPU program, ready for the stages.

    Attributes:
        program: Its ops.
        view: The program and what enters it.
        nodes: All NodeDefs of the GraphDef by name.
    """

    program: Program
    view: GraphView
    nodes: Mapping[str, Any]


def program_view(graph_def: Any, program: Program) -> ProgramView:
    """Reads the TPU program of a GraphDef.

    Args:
        graph_def: The GraphDef.
        program: Its program, of which nothing was refused.

    Raises:
        GraphDefError: TensorFlow does not take the GraphDef.
    """
    graph = imported(graph_def)
    nodes = {node.name: node for node in graph_def.node}
    inside = {node.name for node in program.nodes}
    beside = [_as_seen(graph, nodes[name]) for name in _sources(program, nodes, inside)]
    seen = graph_def_of([*beside, *program.nodes], graph_def)
    outputs, controls = _seen_from_outside(graph_def, inside)

    def view_of(variables: Mapping[str, VariableRef]) -> GraphView:
        return GraphView(
            seen,
            variables=variables,
            outputs=outputs,
            # The program's size must stay, and so must whatever the host waits for.
            control_outputs=dict.fromkeys([program.metadata.name, *controls]),
            op_def=_op_def,
            shape_of=lambda value: function_graph.static_shape(graph, value.op, value.index),
        )

    variables = {node.name: _variable(node) for node in beside if node.op == HANDLE}
    trained = _trained(view_of(variables))
    variables = {
        name: dataclasses.replace(ref, trainable=name in trained) for name, ref in variables.items()
    }
    return ProgramView(program, view_of(variables), nodes)


def imported(graph_def: Any) -> tf.Graph:
    """A graph of a GraphDef, which knows the shapes in it.

    Raises:
        GraphDefError: TensorFlow does not take the GraphDef.
    """
    try:
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(graph_def, name="")
    # An edge to nowhere, an unknown op, an attribute that makes no sense: each has its own class.
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        raise GraphDefError(
            f"TensorFlow does not take the GraphDef: {error}; give rewrite_graph_def what"
            " tf.Graph.as_graph_def() returns, with every custom op loaded"
        ) from error
    return graph


def _op_def(op_type: str) -> Any | None:
    return _OUTSIDE_DEF if op_type == _OUTSIDE else function_graph.op_def(op_type)


def _outside_def() -> Any:
    like: Any = function_graph.op_def("NoOp")
    definition = type(like)(name=_OUTSIDE)
    definition.output_arg.add(name="values", type_list_attr="T")
    return definition


_OUTSIDE_DEF = _outside_def()


def _sources(program: Program, nodes: Mapping[str, Any], inside: set[str]) -> Iterator[str]:
    """What enters the program and, through TPUReplicatedInputs, what enters these; each once."""
    found: dict[str, None] = {}
    for node in program.nodes:
        for source in sources_of(node):
            if source not in inside:
                found[source] = None
    for name in list(found):
        if nodes[name].op == REPLICATED_INPUT:
            found.update(dict.fromkeys(sources_of(nodes[name])))
    return iter(found)


def _as_seen(graph: tf.Graph, node: Any) -> Any:
    """A node beside the program, as it stands in the view."""
    if node.op in (REPLICATED_INPUT, HANDLE, "Const"):
        seen = copy_of(node)
        del seen.input[:]
        if node.op == REPLICATED_INPUT:
            seen.input.extend(text for text in node.input if text[0] != "^")
        return seen
    seen = tf.compat.v1.NodeDef(name=node.name, op=_OUTSIDE)
    outputs = graph.get_operation_by_name(node.name).outputs
    seen.attr["T"].list.type.extend(tensor.dtype.base_dtype.as_datatype_enum for tensor in outputs)
    return seen


def _variable(node: Any) -> VariableRef:
    """A variable that all replicas share, as the TPU's runtime has it: each reads its value."""
    shape = attribute_in(node.attr, "shape").shape
    dims = tuple(dim.size for dim in shape.dim)
    known = not shape.unknown_rank and all(size >= 0 for size in dims)
    return VariableRef(
        key=node.name,
        replica=0,
        num_replicas=1,
        shape=dims if known else None,
        dtype=attribute_in(node.attr, "dtype").type,
        mirrored=True,
        device=node.device,
    )


def _seen_from_outside(graph_def: Any, inside: set[str]) -> tuple[list[Value], list[str]]:
    """The values of the program that the host reads, and the ops of it that the host awaits."""
    values: dict[Value, None] = {}
    controls: dict[str, None] = {}
    for node in graph_def.node:
        if node.name in inside:
            continue
        for text in node.input:
            if text[0] == "^" and text[1:] in inside:
                controls[text[1:]] = None
            elif text[0] != "^" and text.partition(":")[0] in inside:
                values[parse_value(text)] = None
    return list(values), list(controls)


def _trained(view: GraphView) -> set[str]:
    """The variables that are weights, as a GraphDef does not say it.

    A fused update's first handle is the weight. Elsewhere it is what the gradients depend on, or
    what a function that the program calls is to update.
    """
    found = {op.inputs[0].op for op in view if is_fused_update(op.type)}
    sums = (op.inputs[0] for op in view if op.type == SUM)
    behind = map(view.producer, reachable(sums, lambda value: view.producer(value).inputs))
    found.update(op.inputs[0].op for op in behind if op.type == READ)
    found.update(_handed_to_updates(view))
    return found & view.variables.keys()


def _handed_to_updates(view: GraphView) -> Iterator[str]:
    for op in view:
        if not is_call(op.type):
            continue
        for callee in all_named_by(op.node):
            # An If or a Case has its chooser in front of the arguments.
            ahead = len(op.inputs) - _num_arguments(view, callee)
            for argument in _updated_arguments(view, callee, ()):
                yield op.inputs[argument + ahead].op


def _num_arguments(view: GraphView, function: str) -> int:
    definition = view.functions.get(function)
    return len(definition.signature.input_arg) if definition is not None else 0


def _updated_arguments(view: GraphView, function: str, calling: tuple[str, ...]) -> Iterable[int]:
    """The arguments of a function that are the weights of fused updates in it."""
    definition = view.functions.get(function)
    if definition is None or function in calling:
        return ()
    numbers = {arg.name: i for i, arg in enumerate(definition.signature.input_arg)}
    found: dict[int, None] = {}
    for node in definition.node_def:
        given = [text for text in node.input if text[0] != "^"]
        if is_fused_update(node.op) and given[0] in numbers:
            found[numbers[given[0]]] = None
        if not is_call(node.op):
            continue
        for callee in all_named_by(node):
            ahead = len(given) - _num_arguments(view, callee)
            for argument in _updated_arguments(view, callee, (*calling, function)):
                if given[argument + ahead] in numbers:
                    found[numbers[given[argument + ahead]]] = None
    return found
