"""Makes a `GraphView` of a traced function: the graph, and whose variable each handle is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.tpu.cluster import Cluster, cluster_by
from tf_wu_shard.grounds.tpu.ops import METADATA
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.tensorflow_private import traced_function
from tf_wu_shard.tensorflow_private.captured_variables import CapturedVariable
from tf_wu_shard.tensorflow_private.function_graph import op_def
from tf_wu_shard.tensorflow_private.traced_function import TracedFunction
from tf_wu_shard.tensorflow_private.variable_paths import path_of
from tf_wu_shard.unique_names import UniqueNames


@dataclasses.dataclass(frozen=True)
class Captured:
    """A view with the live objects behind its variables.

    Attributes:
        view: The graph.
        variables: For each variable key of the view, the distributed variable.
        cluster: The TPU program in it, if there is one.
        functions: Functions that ops of the view call and that were made since the trace, by name.
        kept_branches: Branch ops and calls that take reduced gradients and were left as they are,
            by name, and why.
        written_out: Names of functions that it called and has the ops of itself now.
    """

    view: GraphView
    variables: dict[str, Any]
    cluster: Cluster | None = None
    functions: dict[str, Any] = dataclasses.field(default_factory=dict)
    kept_branches: dict[str, Refusal] = dataclasses.field(default_factory=dict)
    written_out: frozenset[str] = frozenset()

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
    traced = traced_function.read(graph)
    view, variables = _sight_of(traced)
    metadata = [op.node for op in view.of_types(METADATA)]
    return Captured(view, variables, cluster_by(metadata))


def _sight_of(traced: TracedFunction) -> tuple[GraphView, dict[str, Any]]:
    """A view of a traced function, and the distributed variables in it by key."""
    found = traced.variables
    keys, variables = _keys(found)
    # The workers run one program, each with arguments and plain variables of its own.
    on_workers = any(one.replicas_elsewhere for one in found)
    view = GraphView(
        traced.graph_def,
        variables={
            one.placeholder: _ref(one, key, on_workers)
            for one, key in zip(found, keys, strict=True)
        },
        outputs=[Value(*output) for output in traced.outputs],
        control_outputs=traced.control_outputs,
        op_def=op_def,
        shape_of=lambda value: traced.shape_of(value.op, value.index),
    )
    own_inputs = traced.inputs_by_value if on_workers else ()
    return view.with_inputs(own_inputs, traced.constants), variables


def _keys(found: Iterable[CapturedVariable]) -> tuple[list[str], dict[str, Any]]:
    """For each handle the key of its variable, and the distributed variables by key."""
    keys: list[str] = []
    variables: dict[str, Any] = {}
    known: dict[int, str] = {}
    names = UniqueNames()
    for handle in found:
        if handle.variable is None:
            keys.append(handle.placeholder)
            continue
        # A handle that stands for all components has a key of its own in each program.
        if handle.stands_for_all or id(handle.variable) not in known:
            key = names.take(path_of(handle.variable))
            known[id(handle.variable)] = key
            variables[key] = handle.variable
        keys.append(known[id(handle.variable)])
    return keys, variables


def _ref(found: CapturedVariable, key: str, on_workers: bool) -> VariableRef:
    own = on_workers and found.variable is None
    return VariableRef(
        key=key,
        replica=found.replica,
        num_replicas=found.num_replicas,
        shape=found.shape,
        dtype=found.dtype,
        mirrored=found.mirrored and not own,
        device=found.device,
        trainable=found.variable is not None and found.variable.trainable,
        replicas_elsewhere=found.replicas_elsewhere,
        name=found.name or key,
    )
