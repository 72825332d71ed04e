"""What a FuncGraph holds, read once: who works on it later needs no object of TensorFlow's.

The variables are the exception, as storage is changed on the live ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tf_wu_shard.tensorflow_private import call_time_inputs, function_graph
from tf_wu_shard.tensorflow_private.captured_variables import CapturedVariable, captured_variables


@dataclasses.dataclass(frozen=True)
class TracedFunction:
    """A traced function.

    Attributes:
        graph_def: Its GraphDef. Inputs that Python code fills in at each call are marked, see
            `call_time_inputs`.
        variables: The variables that it uses, in the order in which it captured them.
        constants: TensorProtos of the constants that it captured, by the names of placeholders.
        inputs_by_value: Names of the placeholders that stand for values and are no constants: its
            arguments are, and tensors that it captured.
        outputs: What it returns, each the name of an op and the number of one of its outputs.
        control_outputs: Names of the ops that must run.
        shape_of: The dimensions of an op's output, as `function_graph.static_shape`, asked for
            where they matter: writing all shapes into the GraphDef takes as long as the rest of it.
    """

    graph_def: Any
    variables: tuple[CapturedVariable, ...]
    constants: Mapping[str, Any]
    inputs_by_value: tuple[str, ...]
    outputs: tuple[tuple[str, int], ...]
    control_outputs: tuple[str, ...]
    shape_of: Callable[[str, int], tuple[int | None, ...] | None]


def read(graph: Any) -> TracedFunction:
    """Reads a FuncGraph.

    Args:
        graph: The FuncGraph, outputs and control outputs set.
    """
    constants = function_graph.captured_constants(graph)
    at_call_time = call_time_inputs.call_time_inputs(graph)
    graph_def = graph.as_graph_def()
    for node in graph_def.node if at_call_time else ():
        if node.name in at_call_time:
            node.attr[call_time_inputs.CALL_TIME].list.s.append(node.name.encode())
    return TracedFunction(
        graph_def,
        tuple(captured_variables(graph)),
        constants,
        function_graph.inputs_by_value(graph, constants),
        tuple((t.op.name, t.value_index) for t in graph.outputs),
        tuple(op.name for op in graph.control_outputs),
        function_graph.shapes_given(graph, constants),
    )
