"""Brings what a TPU program does to variables into one graph, out of the functions that it calls.

`strategy.run(a_tf_function)`, a layer that is a `tf.function`, a gradient of its own: for the
compiler of a TPU all these are one program, so they are written out before the analysis looks.
Only calls that take a variable or sum over replicas are; others compute with values alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_wu_shard.graph.capture import Captured
from tf_wu_shard.graph.inlining import Body, inline
from tf_wu_shard.graph.view import GraphView, Value
from tf_wu_shard.tensorflow_private import function_graph

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_PROGRAM = "_tpu_replicate"
_SUM = "CrossReplicaSum"


def flatten(graph: Any, captured: Captured, program: str) -> Captured:
    """The same function with what matters of the called functions written out.

    Args:
        graph: The FuncGraph.
        captured: Its graph and variables.
        program: Name of the TPU program in it.

    Returns:
        The view to work on; `captured` itself where there is nothing to write out.
    """
    flat = _Flat(graph, captured, program)
    return flat.run() if flat.written_out() else captured


class _Flat:
    def __init__(self, graph: Any, captured: Captured, program: str) -> None:
        self._graph = graph
        self._captured = captured
        self._program = program.encode()
        self._nodes: tuple[Any, ...] = tuple(op.node for op in captured.view)
        self._outputs = captured.view.outputs
        self._control_outputs = captured.view.control_outputs
        self._handles = {
            name for name, ref in captured.view.variables.items() if ref.key in captured.variables
        }
        self._sums: dict[str, bool] = {}
        # For each new node, the FuncGraph that it stands in, and its name there.
        self._from: dict[str, tuple[Any, str]] = {}

    def written_out(self) -> bool:
        """Writes out calls until none that matters is left; whether there were any."""
        found = False
        while calls := self._calls():
            found = True
            self._write_out(calls)
        return found

    def _calls(self) -> dict[str, Any]:
        """The FuncGraphs of the calls that matter, by the name of the calling op."""
        found: dict[str, Any] = {}
        for node in self._nodes:
            if node.op not in _CALLS or node.attr[_PROGRAM].s != self._program:
                continue
            name = node.attr["f"].func.name
            takes = any(text in self._handles for text in node.input)
            if not takes and not self._sums_over_replicas(name):
                continue
            called = function_graph.inner_graph(self._graph, name)
            if called is not None and len(called.inputs) == len(node.attr["Tin"].list.type):
                found[node.name] = called
        return found

    def _sums_over_replicas(self, name: str) -> bool:
        if name not in self._sums:
            self._sums[name] = False  # a function that calls itself adds nothing of its own
            definition = self._captured.view.functions.get(name)
            nodes = definition.node_def if definition is not None else ()
            self._sums[name] = any(
                node.op == _SUM
                or (node.op in _CALLS and self._sums_over_replicas(node.attr["f"].func.name))
                for node in nodes
            )
        return self._sums[name]

    def _write_out(self, calls: dict[str, Any]) -> None:
        results = {n.name: len(n.attr["Tout"].list.type) for n in self._nodes if n.name in calls}
        bodies = {name: _body(called, results[name]) for name, called in calls.items()}
        inlined = inline(self._nodes, bodies, self._adopt)
        for name, (call, inner) in inlined.origins.items():
            self._from[name] = (calls[call], inner)
        self._nodes = inlined.nodes
        self._outputs = tuple(inlined.value(v) for v in self._outputs)
        ends = (inlined.ends.get(name, name) for name in self._control_outputs)
        self._control_outputs = tuple(dict.fromkeys(ends))

    def _adopt(self, node: Any) -> None:
        node.attr[_PROGRAM].s = self._program

    def run(self) -> Captured:
        """The function as it is now."""
        old = self._captured.view
        source = old.graph_def
        graph_def = type(source)(versions=source.versions, library=source.library)
        graph_def.node.extend(self._nodes)
        view = GraphView(
            graph_def,
            variables=old.variables,
            outputs=self._outputs,
            control_outputs=self._control_outputs,
            op_def=old.op_def,
            shape_of=self._shape,
        )
        return dataclasses.replace(self._captured, view=view)

    def _shape(self, value: Value) -> tuple[int, ...] | None:
        if value.op in self._from:
            called, name = self._from[value.op]
            return function_graph.static_shape(called, name, value.index)
        return self._captured.view.shape(value)


def _body(called: Any, num_results: int) -> Body:
    """A function's graph; one that a gradient was taken of has got more outputs since."""
    return Body(
        list(called.as_graph_def().node),
        tuple(tensor.op.name for tensor in called.inputs),
        tuple(Value(tensor.op.name, tensor.value_index) for tensor in called.outputs[:num_results]),
        tuple(op.name for op in called.control_outputs),
    )
