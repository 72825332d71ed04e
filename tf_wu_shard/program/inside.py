"""The graph of a branch or a loop's body, seen as part of the program around it."""

from __future__ import annotations

from collections.abc import Callable

from tf_wu_shard.graph.calls import LOOPS, first_argument
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.single_program import SingleProgram


def view_inside(
    captured: Captured, op: Op, called: CalledGraph, name: str, num_replicas: int
) -> GraphView | None:
    """The graph of a branch or a loop's body, seen as part of the program around it.

    Args:
        captured: The enclosing graph and variables.
        op: The loop or branch op.
        called: The branch or body.
        name: Its name.
        num_replicas: How many replicas run the program.

    Returns:
        The view, or None where the graph is not what the op calls.
    """
    definition = captured.view.functions[name]
    body = called.body(len(definition.signature.output_arg))
    operands = op.inputs[first_argument(op.type) :]
    if len(operands) != len(body.arguments):
        return None
    return _view(captured.view, op, called, body, operands, num_replicas)


def _view(
    outer: GraphView,
    op: Op,
    called: CalledGraph,
    body: Body,
    operands: tuple[Value, ...],
    num_replicas: int,
) -> GraphView:
    source = outer.graph_def
    graph_def = type(source)(versions=source.versions, library=source.library)
    graph_def.node.extend(body.nodes)
    variables = {
        argument: outer.variables[value.op]
        for argument, value in zip(body.arguments, operands, strict=True)
        if value.op in outer.variables
    }

    # What a loop begins with is not what it goes on with.
    given = () if op.type in LOOPS else zip(body.arguments, operands, strict=True)
    known = {argument: outer.constant(value) for argument, value in given}
    constants = {argument: tensor for argument, tensor in known.items() if tensor is not None}
    shape_of = called.shapes_given(constants)

    def view(own_inputs: set[str]) -> GraphView:
        return GraphView(
            graph_def,
            variables=variables,
            outputs=body.results,
            control_outputs=body.control_outputs,
            op_def=outer.op_def,
            shape_of=lambda value: shape_of(value.op, value.index),
        ).with_inputs(own_inputs, constants)

    differ = differs(outer, num_replicas)
    own = {a for a, v in zip(body.arguments, operands, strict=True) if differ(v)}
    while True:
        found = view(own)
        if op.type not in LOOPS:
            return found
        # What a turn of the loop leaves different, the next one begins with.
        differ = differs(found, num_replicas)
        more = {a for a, v in zip(body.arguments, body.results, strict=True) if differ(v)} - own
        if not more:
            return found
        own |= more


def differs(view: GraphView, num_replicas: int) -> Callable[[Value], bool]:
    """Finds out whether replicas may have different values."""
    program = SingleProgram(view, {}, num_replicas)
    differing = program.differing()
    return lambda value: program.source(value).op in differing
