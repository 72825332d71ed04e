"""A `GraphView` of a function in a model's files, calls written out, and whose handle each is.

Only calls that take a handle are written out: others compute with values alone. A variable's
handle may enter a TPU program twice, as `tf.saved_model.save` traces functions anew without the
replicas' components; both are taken for one, and its accesses for ordered as they were traced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.dtypes import RESOURCE
from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.graph.calls import PLAIN_CALLS
from tf_wu_shard.graph.nodes import data_inputs, sources_of, with_inputs
from tf_wu_shard.graph.op import Value, attribute_in
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.tpu.ops import REPLICATED_INPUT
from tf_wu_shard.inspection.reading.aliased_handles import in_traced_order
from tf_wu_shard.inspection.reading.calls import called_by
from tf_wu_shard.inspection.reading.checked_nodes import function_body, graph_body
from tf_wu_shard.inspection.reading.likely_weights import likely_weights
from tf_wu_shard.inspection.reading.replica_components import components, with_components
from tf_wu_shard.inspection.reading.shapes import Shapes
from tf_wu_shard.model_files.shapes import shape_of
from tf_wu_shard.model_files.types import BoundFunction, Model, ModelVariable
from tf_wu_shard.program.inlining import Body, inline
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.tensorflow_private import function_graph


@dataclasses.dataclass(frozen=True)
class FunctionView:
    """A function, ready for the stages.

    Attributes:
        view: The graph.
        reordered: Keys of the variables whose accesses the file does not order.
        guessed: Whether the file does not say which variables are trained: those count as weights
            that fused updates update, and those that something reads that is no arithmetic.
    """

    view: GraphView
    reordered: tuple[str, ...] = ()
    guessed: bool = False


def view_of_function(model: Model, function: BoundFunction) -> FunctionView:
    """Reads a function of a model.

    Args:
        model: The model.
        function: The function; its calls come to an end.

    Raises:
        ModelFileError: It makes no sense.
    """

    def op_def(op_type: str) -> Any | None:
        called = model.functions.get(op_type)
        return function_graph.op_def(op_type) if called is None else called.signature

    definition = model.functions[function.name]
    body = function_body(definition, op_def)
    handles = _bound(body, function, model.variables)
    body = _written_out(body, set(handles), model.functions, op_def)
    nodes = list(body.nodes)
    reordered: tuple[str, ...] = ()
    replicas = components(nodes, handles)
    if not replicas:
        nodes, handles, reordered = _one_handle_each(nodes, handles)
    own = [
        name
        for name, node in zip(body.arguments, definition.signature.input_arg, strict=True)
        if node.type != RESOURCE
    ]
    view = _view(model, nodes, handles, body.results, body.control_outputs, own)
    view = with_components(view, replicas, handles)
    return FunctionView(view, reordered, _is_guessed(handles))


def view_of_graph(model: Model, roots: Sequence[str]) -> FunctionView:
    """Reads what some ops of a model's own graph need.

    Args:
        model: The model.
        roots: Names of the ops.

    Raises:
        ModelFileError: It makes no sense.
    """
    nodes = graph_body(model.graph_def.node, function_graph.op_def)
    wanted = _needed(nodes, roots)
    handles = {name: model.variables[key] for name, key in model.handles.items() if name in wanted}
    own = [n.name for n in nodes if n.name in wanted and n.op.startswith("Placeholder")]
    kept = [node for node in nodes if node.name in wanted]
    view = _view(model, kept, handles, (), roots, own)
    return FunctionView(view, guessed=_is_guessed(handles))


def _is_guessed(handles: Mapping[str, ModelVariable]) -> bool:
    return any(variable.trainable is None for variable in handles.values())


def _needed(nodes: Sequence[Any], roots: Sequence[str]) -> set[str]:
    by_name = {node.name: node for node in nodes}
    known = by_name.keys()
    return {*reachable(known & {*roots}, lambda name: known & {*sources_of(by_name[name])})}


def _bound(
    body: Body, function: BoundFunction, variables: Mapping[str, ModelVariable]
) -> dict[str, ModelVariable]:
    """The variables whose handles the arguments are; those of no known variable have their name."""
    first = len(body.arguments) - len(function.bound)
    if first < 0:
        raise ModelFileError(f"{function.name!r} makes no sense: it is bound to more than it takes")
    keys = dict(zip(body.arguments[first:], function.bound, strict=True))
    found: dict[str, ModelVariable] = {}
    for node in body.nodes[: len(body.arguments)]:
        key = keys.get(node.name, "")
        if attribute_in(node.attr, "dtype").type != RESOURCE:
            continue
        if key in variables:
            found[node.name] = variables[key]
        elif not function.bound:
            found[node.name] = ModelVariable(node.name, None, 0, None)
    return found


def _written_out(body: Body, handles: set[str], functions: Mapping[str, Any], op_def: Any) -> Body:
    """The same function with the calls that take a handle, and those that these make, in place."""
    nodes, results, controls = list(body.nodes), body.results, body.control_outputs
    bodies: dict[str, Body] = {}
    while True:
        calls: dict[str, Body] = {}
        for node in nodes:
            name = attribute_in(node.attr, "f").func.name if node.op in PLAIN_CALLS else ""
            if name not in functions or handles.isdisjoint(node.input):
                continue
            if name not in bodies:
                bodies[name] = function_body(functions[name], op_def)
            operands = len(data_inputs(node))
            if operands != len(bodies[name].arguments):
                raise ModelFileError(f"{node.name!r} makes no sense: {name!r} takes other operands")
            calls[node.name] = bodies[name]
        if not calls:
            return Body(nodes, body.arguments, results, controls)
        inlined = inline(nodes, calls, lambda node: None)
        nodes = list(inlined.nodes)
        results = tuple(inlined.value(value) for value in results)
        controls = tuple(dict.fromkeys(inlined.ends.get(name, name) for name in controls))


def _one_handle_each(
    nodes: list[Any], handles: dict[str, ModelVariable]
) -> tuple[list[Any], dict[str, ModelVariable], tuple[str, ...]]:
    """The same nodes, in which all take a variable's handle from one op, and what was ordered."""
    inside = {
        node.name: handles[node.input[0]]
        for node in nodes
        if node.op == REPLICATED_INPUT and node.input and node.input[0] in handles
    }
    chosen: dict[str, str] = {}
    for name, variable in (*inside.items(), *handles.items()):
        chosen.setdefault(variable.key, name)
    instead = {
        name: chosen[variable.key]
        for name, variable in handles.items()
        if chosen[variable.key] != name
    }
    all_handles = {chosen[v.key]: v for v in (*inside.values(), *handles.values())}
    if not instead:
        return nodes, all_handles, ()
    redirected: list[Any] = []
    twice: dict[str, None] = {}
    for node in nodes:
        taken = [text for text in node.input if text in instead]
        if not taken or node.op == REPLICATED_INPUT:
            redirected.append(node)
            continue
        twice.update(dict.fromkeys(handles[text].key for text in taken))
        redirected.append(with_inputs(node, instead))
    ordered = {name: v.key for name, v in all_handles.items() if v.key in twice}
    program = in_traced_order((node for node in redirected if node.op != REPLICATED_INPUT), ordered)
    entries = [node for node in redirected if node.op == REPLICATED_INPUT]
    return [*entries, *program], all_handles, tuple(twice)


def _view(
    model: Model,
    nodes: Sequence[Any],
    handles: Mapping[str, ModelVariable],
    outputs: Sequence[Value],
    controls: Sequence[str],
    own: Sequence[str],
) -> GraphView:
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.extend(nodes)
    graph_def.library.function.extend(_called(nodes, model.functions))
    shapes = Shapes()
    view = GraphView(
        graph_def,
        variables={},
        outputs=outputs,
        control_outputs=controls,
        op_def=_op_def,
        shape_of=shapes.of,
    ).with_inputs(own, {})
    refs = {name: _ref(view, name, variable) for name, variable in handles.items()}
    shapes.read(view, refs)
    view = view.with_variables(refs)
    guessed = {n for n, v in handles.items() if v.trainable is None} & likely_weights(view)
    known = {
        name: dataclasses.replace(ref, trainable=True) if name in guessed else ref
        for name, ref in refs.items()
    }
    return view.with_variables(known)


def _called(nodes: Iterable[Any], functions: Mapping[str, Any]) -> list[Any]:
    """The functions that nodes still call, and those that these call."""
    found: dict[str, Any] = {}
    pending = list(nodes)
    while pending:
        for name in called_by(pending.pop()):
            if name in functions and name not in found:
                found[name] = functions[name]
                pending += functions[name].node_def
    return list(found.values())


def _op_def(op_type: str) -> Any | None:
    return function_graph.op_def(op_type)


def _ref(view: GraphView, name: str, variable: ModelVariable) -> VariableRef:
    shape, dtype = variable.shape, variable.dtype
    reads = [op for op, _ in view.consumers(Value(name)) if op.type == READ]
    for read in reads if shape is None or not dtype else ():
        stated = read.attribute("_output_shapes").list.shape
        shape = shape_of(stated[0]) if shape is None and stated else shape
        dtype = dtype or read.attribute("dtype").type
    return VariableRef(
        key=variable.key,
        replica=0,
        num_replicas=1,
        shape=shape,
        dtype=dtype,
        mirrored=True,
        device="",
        trainable=bool(variable.trainable),
    )
