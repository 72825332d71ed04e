"""The graph of a function that ops call: its nodes, what is known of them, and whom it calls.

What writes calls and branches out asks this, so that it does not matter whether the function was
traced in this process (`TracedGraph`) or stands in a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from tf_wu_shard.graph.dimensions import Dims
from tf_wu_shard.graph.op import Value
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.graph_rebuilding import NewBody, make_function

Shape = Dims | None


class MadeFunction(Protocol):
    """A function that was made out of another."""

    @property
    def name(self) -> bytes:
        """Its name, as TensorFlow's functions have theirs."""

    @property
    def definition(self) -> Any:
        """Its FunctionDef."""

    @property
    def graph(self) -> Any:
        """What `CalledGraph.inner` makes its graph of."""


class CalledGraph(Protocol):
    """The graph of a function."""

    def inner(self, name: str, made: Mapping[str, Any]) -> CalledGraph | None:
        """The graph of a function that its ops call; None where it is not known.

        Args:
            name: The function's name.
            made: Functions made since, by name: those come first.
        """

    def body(self, num_results: int | None = None) -> Body:
        """Its nodes.

        Args:
            num_results: How many results it had when it was called, as one that a gradient was
                taken of has got more since; None for all.
        """

    def num_results(self, op: str) -> int:
        """How many results one of its ops has."""

    def static_shape(self, op: str, output: int) -> Shape:
        """The dimensions of an op's result, None for open ones; None for an open rank."""

    def shapes_given(self, constants: Mapping[str, Any]) -> Callable[[str, int], Shape]:
        """As `static_shape`, and what follows from arguments that are constants.

        Args:
            constants: TensorProtos of these arguments, by their Placeholders' names.
        """

    def remade(self, body: Body, functions: Iterable[MadeFunction]) -> MadeFunction:
        """A function of other nodes.

        Args:
            body: The nodes; an argument that is a handle is one of the same name here.
            functions: What was made for its ops to call.
        """


@dataclasses.dataclass(frozen=True)
class TracedGraph:
    """A FuncGraph; see `CalledGraph`."""

    graph: Any

    def inner(self, name: str, made: Mapping[str, Any]) -> TracedGraph | None:
        """See `CalledGraph.inner`: functions that were loaded, by definition alone, are unknown."""
        if name in made:
            return TracedGraph(made[name].graph)
        found = function_graph.inner_graph(self.graph, name)
        return None if found is None else TracedGraph(found)

    def body(self, num_results: int | None = None) -> Body:
        """See `CalledGraph.body`."""
        return Body(
            list(self.graph.as_graph_def().node),
            tuple(tensor.op.name for tensor in self.graph.inputs),
            tuple(Value(t.op.name, t.value_index) for t in self.graph.outputs[:num_results]),
            tuple(op.name for op in self.graph.control_outputs),
        )

    def num_results(self, op: str) -> int:
        """See `CalledGraph.num_results`."""
        return function_graph.num_results(self.graph, op)

    def static_shape(self, op: str, output: int) -> Shape:
        """See `CalledGraph.static_shape`."""
        return function_graph.static_shape(self.graph, op, output)

    def shapes_given(self, constants: Mapping[str, Any]) -> Callable[[str, int], Shape]:
        """See `CalledGraph.shapes_given`."""
        return function_graph.shapes_given(self.graph, constants)

    def remade(self, body: Body, functions: Iterable[MadeFunction]) -> Any:
        """See `CalledGraph.remade`; it is TensorFlow's own to call."""
        results = [f"{value.op}:{value.index}" for value in body.results]
        new = NewBody(body.nodes, results, body.control_outputs, functions)
        return make_function(self.graph, new, body.arguments, handles={})
