"""Traced functions of a running program in the form in which a model's files hold them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.inspection.answers.answer import SCRIPT
from tf_wu_shard.model_files.source_lines import SourceLines
from tf_wu_shard.model_files.types import BoundFunction, Model, ModelVariable, SlotRelation
from tf_wu_shard.rules.writes import WRITING
from tf_wu_shard.tensorflow_private import function_graph, op_traces
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.tensorflow_private.variable_paths import path_of
from tf_wu_shard.unique_names import UniqueNames

# The list of weights that an optimizer of Keras 3 keeps.
_WEIGHTS = "_trainable_variables"


def live_model(functions: Sequence[Any]) -> Model:
    """A model of some functions and what they call, each offered that writes a variable.

    Args:
        functions: The ConcreteFunctions, each on one device.
    """
    holder = tf.Graph()
    for function in functions:
        function.add_to_graph(holder)
    graph_def = holder.as_graph_def(add_shapes=True)
    library = {f.signature.name: f for f in graph_def.library.function}
    variables = _variables([function.graph for function in functions])
    offered: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for function in functions:
        name = tf.compat.as_str(function.name)
        keys = {id(h): variables[id(h)].key for h in function.captured_inputs if id(h) in variables}
        offered[name] = function.graph, tuple(keys.get(id(h), "") for h in function.captured_inputs)
        for inner, graph, bound in _called(function.graph, keys):
            if any(node.op in WRITING for node in library[inner].node_def):
                offered.setdefault(inner, (graph, bound))
    found = list(variables.values())
    return Model(
        form=SCRIPT,
        graph_def=graph_def,
        functions=library,
        bound=tuple(BoundFunction(name, bound) for name, (_, bound) in offered.items()),
        variables={variable.key: variable for variable in found},
        handles={},
        slots=slot_relations({handle: v.key for handle, v in variables.items()}),
        train_ops=(),
        notes=(),
        source_lines=SourceLines(op_traces.debug_info({n: g for n, (g, _) in offered.items()})),
    )


def _variables(graphs: Sequence[Any]) -> dict[int, ModelVariable]:
    """The variables that graphs use, by the ids of their handles."""
    found: dict[int, ModelVariable] = {}
    names = UniqueNames()
    for variable in (v for graph in graphs for v in graph.variables):
        for component in getattr(variable, "values", (variable,)):
            handle = original_handle(component)
            if handle is None or id(handle) in found:
                continue
            shape = component.shape
            found[id(handle)] = ModelVariable(
                names.take(_name(variable, component) or "variable"),
                tuple(shape) if shape.is_fully_defined() else None,
                component.dtype.as_datatype_enum,
                bool(component.trainable),
            )
    return found


def _name(variable: Any, component: Any) -> str:
    """The path of a variable, and behind it what TensorFlow adds for a replica's component."""
    whole, own = (one.name.partition(":")[0] for one in (variable, component))
    return path_of(variable) + own.removeprefix(whole)


def _called(graph: Any, keys: Mapping[int, str]) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """The functions that a graph calls, with what their last arguments are; not branches.

    Args:
        graph: A FuncGraph.
        keys: Keys of the variables whose handles it captured, by the handles' ids.
    """
    own = dict(keys)
    own |= {id(p): keys[id(e)] for e, p in graph.captures if id(e) in keys}
    for name in graph._functions:
        inner = function_graph.inner_graph(graph, name)
        if inner is None or function_graph.is_branch_or_body(inner):
            continue
        outside = [e for e, _ in inner.captures]
        yield name, inner, tuple(own.get(id(e), "") for e in outside)
        yield from _called(inner, {id(e): own[id(e)] for e in outside if id(e) in own})


def slot_relations(keys: Mapping[int, str]) -> tuple[SlotRelation, ...]:
    """Which variables Keras optimizers of this process keep for which, as their lists pair them.

    Args:
        keys: Keys of the variables, by the ids of their handles.
    """
    found: dict[SlotRelation, None] = {}
    for optimizer in [o for o in gc.get_objects() if _is_optimizer(o)]:
        weights = vars(optimizer)[_WEIGHTS]
        for name, members in vars(optimizer).items():
            if name == _WEIGHTS or not isinstance(members, list) or len(members) != len(weights):
                continue
            for weight, slot in zip(weights, members, strict=True):
                pair = (keys.get(_handle_id(weight), ""), keys.get(_handle_id(slot), ""))
                if all(pair) and pair[0] != pair[1]:
                    found[SlotRelation(pair[0], name.lstrip("_"), pair[1])] = None
    return tuple(found)


def _is_optimizer(found: Any) -> bool:
    # Asked of every object of the process: of its class, as some answer isinstance as they like.
    bases = ((c.__name__, c.__module__) for c in type(found).__mro__)
    is_one = any(
        name == "BaseOptimizer" and isinstance(module, str) and module.startswith("keras.")
        for name, module in bases
    )
    return is_one and bool(vars(found).get(_WEIGHTS))


def _handle_id(variable: Any) -> int:
    """The id of the handle of a Keras variable's first component; 0 for anything else."""
    held = getattr(variable, "value", None)
    if not isinstance(held, tf.Variable):
        return 0
    component = getattr(held, "values", (held,))[0]
    return id(original_handle(component))
