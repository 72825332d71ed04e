"""Makes a `GraphView` of a traced function: the graph, and whose variable each handle is."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.tpu.cluster import Cluster, cluster_of
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.tensorflow_private import call_time_inputs, function_graph
from tf_wu_shard.tensorflow_private.captured_variables import CapturedVariable, captured_variables


@dataclasses.dataclass(frozen=True)
class Captured:
    """A view with the live objects behind its variables.

    Attributes:
        view: The graph.
        variables: For each variable key of the view, the distributed variable.
        cluster: The TPU program in it, if there is one.
        functions: Functions that ops of the view call and that were made since the trace, by name.
        kept_branches: Branch ops that take reduced gradients and were left as they are, by name,
            and why.
    """

    view: GraphView
    variables: dict[str, Any]
    cluster: Cluster | None = None
    functions: dict[str, Any] = dataclasses.field(default_factory=dict)
    kept_branches: dict[str, Refusal] = dataclasses.field(default_factory=dict)

    def with_view(self, view: GraphView) -> Captured:
        """The same variables, and another graph."""
        return dataclasses.replace(self, view=view)

    def with_nodes(
        self, nodes: Iterable[Any], functions: Mapping[str, Any], **known: Any
    ) -> Captured:
        """The same variables, and a graph of other nodes.

        Args:
            nodes: The NodeDefs.
            functions: All functions made since the trace, by name.
            known: What else is known of the graph, see `GraphView.with_graph`.
        """
        graph_def = graph_def_of(nodes, self.view.graph_def)
        made = (function for name, function in functions.items() if name not in self.functions)
        graph_def.library.function.extend(function.definition for function in made)
        view = self.view.with_graph(graph_def, **known)
        return dataclasses.replace(self, view=view, functions=dict(functions))


def capture(graph: Any) -> Captured:
    """Reads a traced FuncGraph.

    Args:
        graph: The FuncGraph, outputs and control outputs set.

    Returns:
        The view, and the live mirrored variables behind it.
    """
    cluster = cluster_of(graph)
    found = captured_variables(graph)
    constants = function_graph.captured_constants(graph)
    at_call_time = call_time_inputs.call_time_inputs(graph)
    shape_of = function_graph.shapes_given(graph, constants)
    keys, variables = _keys(found)
    graph_def = graph.as_graph_def()
    for node in graph_def.node if at_call_time else ():
        if node.name in at_call_time:
            node.attr[call_time_inputs.CALL_TIME].list.s.append(node.name.encode())
    own: tuple[str, ...] = ()
    if any(one.replicas_elsewhere for one in found):
        # The workers run one program, each with arguments and plain variables of its own.
        own = function_graph.inputs_by_value(graph)
        found = [one if one.variable is not None else one._replace(mirrored=False) for one in found]
    view = GraphView(
        graph_def,
        variables={one.placeholder: _ref(one, keys[i]) for i, one in enumerate(found)},
        outputs=[Value(t.op.name, t.value_index) for t in graph.outputs],
        control_outputs=[op.name for op in graph.control_outputs],
        op_def=function_graph.op_def,
        # Asked for where they matter: writing all shapes into the GraphDef takes as long as the
        # rest of it.
        shape_of=lambda value: shape_of(value.op, value.index),
    ).with_inputs(own, constants)
    return Captured(view, variables, cluster)


def _keys(found: list[CapturedVariable]) -> tuple[list[str], dict[str, Any]]:
    """For each handle the key of its variable, and the distributed variables by key."""
    keys: list[str] = []
    variables: dict[str, Any] = {}
    known: dict[int, str] = {}
    for handle in found:
        if handle.variable is None:
            keys.append(handle.placeholder)
            continue
        # A handle that stands for all components has a key of its own in each program.
        if handle.stands_for_all or id(handle.variable) not in known:
            name = handle.variable.name.partition(":")[0]
            numbered = (f"{name}_{count}" for count in itertools.count(1))
            key = next(k for k in itertools.chain((name,), numbered) if k not in variables)
            known[id(handle.variable)] = key
            variables[key] = handle.variable
        keys.append(known[id(handle.variable)])
    return keys, variables


def _ref(found: CapturedVariable, key: str) -> VariableRef:
    return VariableRef(
        key=key,
        replica=found.replica,
        num_replicas=found.num_replicas,
        shape=found.shape,
        dtype=found.dtype,
        mirrored=found.mirrored,
        device=found.device,
        trainable=found.variable is not None and found.variable.trainable,
        replicas_elsewhere=found.replicas_elsewhere,
        name=found.name or key,
    )
