"""Makes a `GraphView` of a traced function: the graph, and whose variable each handle is."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.tensorflow_private import function_graph, tpu_graph
from tf_wu_shard.tensorflow_private.distributed_variables import distributed_variable_of


@dataclasses.dataclass(frozen=True)
class Captured:
    """A view with the live objects behind its variables.

    Attributes:
        view: The graph.
        variables: For each variable key of the view, the distributed variable.
        functions: Functions that ops of the view call and that were made since the trace, by name.
        kept_branches: Branch ops that take reduced gradients and were left as they are, by name,
            and why.
    """

    view: GraphView
    variables: dict[str, Any]
    functions: dict[str, Any] = dataclasses.field(default_factory=dict)
    kept_branches: dict[str, Refusal] = dataclasses.field(default_factory=dict)

    def with_view(self, view: GraphView) -> Captured:
        """The same variables, and another graph."""
        return dataclasses.replace(self, view=view)


def capture(graph: Any) -> Captured:
    """Reads a traced FuncGraph.

    Args:
        graph: The FuncGraph, outputs and control outputs set.

    Returns:
        The view, and the live mirrored variables behind it.
    """
    refs: dict[str, VariableRef] = {}
    variables: dict[str, Any] = {}
    keys: dict[int, str] = {}
    for handle, placeholder in function_graph.captured_handles(graph):
        found = distributed_variable_of(handle)
        shape, dtype = function_graph.handle_shape_and_type(placeholder)
        if found is None:
            refs[placeholder.op.name] = _alone(handle, placeholder.op.name, shape, dtype)
            continue
        variable, replica = found
        key = keys.get(id(variable))
        if key is None:
            key = _unique(variable.name.partition(":")[0], variables)
            keys[id(variable)] = key
            variables[key] = variable
        refs[placeholder.op.name] = VariableRef(
            key=key,
            replica=replica,
            num_replicas=len(variable.values),
            shape=shape,
            dtype=dtype,
            mirrored=True,
            device=variable.values[replica].device,
            trainable=variable.trainable,
        )
    for name, variable in tpu_graph.replicated_variables(graph).items():
        key = _unique(variable.name.partition(":")[0], variables)
        variables[key] = variable
        refs[name] = _replicated(key, variable)
    constants = function_graph.captured_constants(graph)
    shape_of = function_graph.shapes_given(graph, constants)
    view = GraphView(
        graph.as_graph_def(),
        variables=refs,
        outputs=[Value(t.op.name, t.value_index) for t in graph.outputs],
        control_outputs=[op.name for op in graph.control_outputs],
        op_def=function_graph.op_def,
        # Asked for where they matter: writing all shapes into the GraphDef takes as long as the
        # rest of it.
        shape_of=lambda value: shape_of(value.op, value.index),
        constants=constants,
    )
    return Captured(view, variables)


def _replicated(key: str, variable: Any) -> VariableRef:
    """A variable of a TPU program: one handle there stands for all components."""
    known = variable.shape.is_fully_defined()
    return VariableRef(
        key=key,
        replica=0,
        num_replicas=1,
        shape=tuple(variable.shape) if known else None,
        dtype=variable.dtype.as_datatype_enum,
        mirrored=tpu_graph.is_mirrored(variable),
        device="",
        trainable=variable.trainable,
    )


def _alone(handle: Any, name: str, shape: tuple[int, ...] | None, dtype: int) -> VariableRef:
    """What is known of a handle that belongs to no mirrored variable."""
    return VariableRef(
        key=name,
        replica=0,
        num_replicas=1,
        shape=shape,
        dtype=dtype,
        mirrored=not function_graph.is_replica_local(handle),
        device=handle.device if hasattr(handle, "device") else "",
    )


def _unique(name: str, taken: dict[str, Any]) -> str:
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
