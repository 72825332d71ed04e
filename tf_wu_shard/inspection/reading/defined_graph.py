"""Functions in a model's files, as what writes calls and branches out wants them.

See `program.called_graph`. Nothing is traced or imported: a definition is read, and a function that
is made of another is a definition again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.dimensions import Dims
from tf_wu_shard.graph.op import Value, attribute_in, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.reading.checked_nodes import OpForm, function_body
from tf_wu_shard.inspection.reading.shapes import Shapes
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.tensorflow_private.graph_rebuilding import MADE, traced_name


class Definitions:
    """The functions of a model, each read once."""

    def __init__(self, functions: Mapping[str, Any], op_def: Callable[[str], Any | None]) -> None:
        """Begins with none read.

        Args:
            functions: The FunctionDefs by name.
            op_def: The OpDef of an op type, or the signature of a function called by its name.
        """
        self._functions = functions
        self._read: dict[str, DefinedGraph] = {}
        self._made = 0
        self.op_def = op_def

    def find(self, name: str) -> DefinedGraph | None:
        """A function of the model, or None.

        Raises:
            ModelFileError: It makes no sense.
        """
        if name in self._functions and name not in self._read:
            definition = self._functions[name]
            body = function_body(definition, self.op_def)
            self._read[name] = DefinedGraph(self, definition, body)
        return self._read.get(name)

    def new_name(self, name: str) -> str:
        """A name that no function has, for one that is made of another."""
        while True:
            self._made += 1
            found = f"{traced_name(name)}{MADE}{self._made}"
            if found not in self._functions:
                return found


@dataclasses.dataclass(frozen=True)
class MadeDefinition:
    """A function that was made out of another; see `program.called_graph.MadeFunction`."""

    name: bytes
    definition: Any
    graph: DefinedGraph


class DefinedGraph:
    """A function by its definition; see `program.called_graph.CalledGraph`."""

    def __init__(self, source: Definitions, definition: Any, body: Body) -> None:
        """Reads nothing yet.

        Args:
            source: Where the functions are that its ops call.
            definition: The FunctionDef.
            body: Its nodes.
        """
        self._source = source
        self._definition = definition
        self._body = body

    def inner(self, name: str, made: Mapping[str, Any]) -> DefinedGraph | None:
        """See `CalledGraph.inner`."""
        if name not in made:
            return self._source.find(name)
        found: DefinedGraph = made[name].graph
        return found

    def body(self, num_results: int | None = None) -> Body:
        """See `CalledGraph.body`."""
        return self._body._replace(results=self._body.results[:num_results])

    def num_results(self, op: str) -> int:
        """See `CalledGraph.num_results`; 0 of an op that TensorFlow does not know."""
        if self._source.op_def(self._view.ops[op].type) is None:
            return 0
        return len(self._view.results(op))

    def static_shape(self, op: str, output: int) -> Dims | None:
        """See `CalledGraph.static_shape`: as far as the file states it."""
        value = Value(op, output)
        known = self._view.shape(value)
        return self._view.stated(value) if known is None else known

    def shapes_given(self, constants: Mapping[str, Any]) -> Callable[[str, int], Dims | None]:
        """See `CalledGraph.shapes_given`: a file says shapes as they were inferred."""
        return self.static_shape

    def remade(self, body: Body, functions: Iterable[Any]) -> MadeDefinition:
        """See `CalledGraph.remade`."""
        name = self._source.new_name(self._definition.signature.name)
        definition = _definition(name, body, self._source.op_def)
        return MadeDefinition(
            name.encode(), definition, DefinedGraph(self._source, definition, body)
        )

    @functools.cached_property
    def _view(self) -> GraphView:
        graph_def = tf.compat.v1.GraphDef()
        graph_def.node.extend(self._body.nodes)
        shapes = Shapes()
        view = GraphView(
            graph_def,
            variables={},
            outputs=self._body.results,
            control_outputs=self._body.control_outputs,
            op_def=self._source.op_def,
            shape_of=shapes.of,
        )
        shapes.read(view, {})
        return view


def _definition(name: str, body: Body, op_def: Callable[[str], Any | None]) -> Any:
    """A FunctionDef of nodes as graphs have them, the reverse of `checked_nodes.function_body`.

    It is to be read, not to run: the results' types are left out.
    """
    definition = tf.compat.v1.GraphDef().library.function.add()
    definition.signature.name = name
    arguments = set(body.arguments)
    by_name = {node.name: node for node in body.nodes}
    for argument in body.arguments:
        dtype = attribute_in(by_name[argument].attr, "dtype").type
        definition.signature.input_arg.add(name=argument, type=dtype)
    forms: dict[str, OpForm | None] = {}

    def named(text: str) -> str:
        if text.startswith("^"):
            return text
        value = parse_value(text)
        if value.op in arguments:
            return value.op
        node = by_name[value.op]
        if node.op not in forms:
            known = op_def(node.op)
            forms[node.op] = None if known is None else OpForm(known)
        form = forms[node.op]
        starts = {"output": 0} if form is None else form.starts(node)
        result = max((r for r in starts if starts[r] <= value.index), key=lambda r: starts[r])
        return f"{value.op}:{result}:{value.index - starts[result]}"

    for node in body.nodes:
        if node.name not in arguments:
            new = definition.node_def.add()
            new.CopyFrom(node)
            new.input[:] = [named(text) for text in node.input]
    for number, result in enumerate(body.results):
        definition.signature.output_arg.add(name=f"result_{number}")
        definition.ret[f"result_{number}"] = named(str(result))
    for control in body.control_outputs:
        definition.control_ret[control] = control
    return definition
