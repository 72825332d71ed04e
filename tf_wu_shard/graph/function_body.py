"""The body of a function of a graph's library, as a view of its own.

A FunctionDef names arguments and the outputs of ops otherwise than a GraphDef does; here they are
ops and values like any other. What a function calls in turn it finds in the same library.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Value, attribute_in, parse_value
from tf_wu_shard.graph.view import GraphView

# The op type that stands for an argument.
ARGUMENT = "_Arg"


def function_view(view: GraphView, name: str, operands: Sequence[Value]) -> GraphView | None:
    """A function of a view's library, called with some of the view's values.

    Args:
        view: The graph.
        name: The function.
        operands: What it is called with; the shapes of its arguments are theirs.

    Returns:
        A view in which the i-th op, of type `ARGUMENT`, is the i-th argument and the outputs are
        what the function returns; None where the library has no such function.

    Raises:
        WuShardError: It reads what it does not compute, as a file may say.
    """
    function = view.functions.get(name)
    if function is None or len(function.signature.input_arg) != len(operands):
        return None
    arguments = [argument.name for argument in function.signature.input_arg]
    given = dict(zip(arguments, operands, strict=True))
    nodes = {node.name: node for node in function.node_def}

    def value(text: str) -> str:
        source, _, output = text.partition(":")
        if text.startswith("^") or not output:
            return text
        part, _, index = output.partition(":")
        if source not in nodes or not (index or "0").isdecimal():
            raise WuShardError(f"function {name!r} reads {text!r}, which it does not have")
        number = _first(view, nodes[source], part) + int(index or 0)
        return f"{source}:{number}" if number else source

    def shape_of(found: Value) -> tuple[int, ...] | None:
        if found.op in given:
            return view.shape(given[found.op])
        node = nodes[found.op]
        if node.op == "Const":
            return tuple(d.size for d in attribute_in(node.attr, "value").tensor.tensor_shape.dim)
        shapes = attribute_in(node.attr, "_output_shapes").list.shape
        if found.index >= len(shapes) or shapes[found.index].unknown_rank:
            return None
        dims = tuple(d.size for d in shapes[found.index].dim)
        return None if any(d < 0 for d in dims) else dims

    body = [
        types.SimpleNamespace(name=name, op=ARGUMENT, input=(), device="", attr={})
        for name in arguments
    ] + [
        types.SimpleNamespace(
            name=node.name,
            op=node.op,
            input=[value(text) for text in node.input],
            device=node.device,
            attr=node.attr,
        )
        for node in function.node_def
    ]
    library = view.graph_def.library
    returned = [function.ret[result.name] for result in function.signature.output_arg]
    return GraphView(
        types.SimpleNamespace(node=body, library=library),
        variables={},
        outputs=[parse_value(value(text)) for text in returned],
        control_outputs=(),
        op_def=view.op_def,
        shape_of=shape_of,
    )


def _first(view: GraphView, node: Any, part: str) -> int:
    """The number of an op's first output of those that its definition calls `part`."""
    definition = view.op_def(node.op)
    first = 0
    for output in definition.output_arg if definition is not None else ():
        if output.name == part:
            return first
        several = output.number_attr or output.type_list_attr
        if not several:
            first += 1
        elif output.number_attr:
            first += attribute_in(node.attr, output.number_attr).i
        else:
            first += len(attribute_in(node.attr, output.type_list_attr).list.type)
    return 0
