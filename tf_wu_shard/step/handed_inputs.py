"""Which inputs of a traced function are a replica's own, as far as the functions around it show."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.capture import capture
from tf_wu_shard.step.copy_values import CopyValues, Handed, Input
from tf_wu_shard.step.origins import Origin
from tf_wu_shard.tensorflow_private import function_graph

# What is handed over is not told apart: the copies are to make the same of it.
_ANSWERED_FOR = Input("an argument", Origin.ANSWERED_FOR)


def own_inputs(graph: Any, *, of_arguments: bool) -> Handed:
    """Tells which inputs may be a replica's own, where not all replicas have the same one.

    What a branch, a loop or a called function captured is looked up in the function that has it,
    which is still being traced.

    Args:
        graph: The FuncGraph.
        of_arguments: Whether what it did not capture may be a replica's own; False where that is
            for those to say who hand it over. What the copies make of it may still differ.
    """
    captured = function_graph.captured_values(graph) if function_graph.is_nested(graph) else {}

    @functools.cache
    def view_of(outer: Any) -> GraphView:
        return capture(outer).view

    def handed(inputs: Mapping[str, int], copies: int) -> Mapping[str, Input]:
        found: dict[str, Input] = {}
        around: dict[Any, dict[str, Value]] = {}
        for name in inputs:
            if name in captured:
                outer, op, index = captured[name]
                around.setdefault(outer, {})[name] = Value(op, index)
            else:
                found[name] = Input(name) if of_arguments else _ANSWERED_FOR
        for outer, values in around.items():
            made_of = dict.fromkeys(values.values(), 0)
            for name, value in values.items():
                made_of[value] |= inputs[name]
            own = own_inputs(outer, of_arguments=of_arguments)
            known = CopyValues(view_of(outer), made_of, copies, handed=own)
            for name, value in values.items():
                # Here it is an input and no constant.
                is_constant = known.origin(value) is Origin.CONSTANT
                origin = Origin.ANSWERED_FOR if is_constant else known.origin(value)
                found[name] = Input(known.number(value), origin)
        return found

    return handed
