"""The update of an optimizer as a graph, with no weight, no slot and no gradient in memory.

A copy of the optimizer is built and traced in a graph of its own, where variables are names and
shapes only; every gradient is an input of the traced function. That is what the analysis reads: the
slots are those that Keras makes, and how they may be cut is found as in a real step. What Keras
does to each replica's own gradient before the sum (clipping, unscaling) is left out, as it is on
no shard.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_wu_shard.errors import OptionError
from tf_wu_shard.estimation.weights import TrainedWeight, number_of
from tf_wu_shard.graph.calls import CALLS
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices, Gathered
from tf_wu_shard.tensorflow_private import function_graph, traced_graphs
from tf_wu_shard.unique_names import UniqueNames
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable

# What is done to gradients before they are summed, or in a branch around the whole update.
_AROUND: Mapping[str, Any] = {
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
    "ema_overwrite_frequency": None,
}

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


@dataclasses.dataclass(frozen=True)
class OptimizerStep:
    """What an optimizer does with summed gradients.

    Attributes:
        name: The optimizer's class.
        view: The graph of the update.
        gradients: Its gradients, by what a dialect would have recognised.
        slots: The optimizer's variables of one dimension at least; only their key, shape and
            dtype mean something.
        accumulators: The same for the sums of gradients that each replica keeps of its own.
        counters: Shape and element type of the optimizer's other variables: step, learning rate.
    """

    name: str
    view: GraphView
    gradients: tuple[CarriedReduction, ...]
    slots: tuple[UpdatedVariable, ...]
    accumulators: tuple[UpdatedVariable, ...]
    counters: tuple[tuple[tuple[int, ...], str], ...]


def optimizer_of(wanted: Any) -> keras.optimizers.Optimizer:
    """The optimizer that is meant.

    Args:
        wanted: A Keras optimizer, its class, its class's name in any case and with or without
            underscores, or a configuration as `keras.optimizers.serialize` writes it.

    Raises:
        OptionError: Keras has none of that name, or cannot make it from defaults.
    """
    if isinstance(wanted, keras.optimizers.Optimizer):
        return wanted
    try:
        if isinstance(wanted, str):
            return _class_of(wanted)()
        if isinstance(wanted, type) and issubclass(wanted, keras.optimizers.Optimizer):
            return wanted()
        if isinstance(wanted, Mapping):
            return _deserialized(wanted)
    except OptionError:
        raise
    except (TypeError, ValueError) as error:
        raise OptionError(f"the optimizer {wanted!r} cannot be made: {error}") from error
    kind = type(wanted)
    # Those of tf_keras have the same names.
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    raise OptionError(f"the optimizer must be one of Keras 3, its class or its name, not {name}")


def _deserialized(configuration: Mapping[str, Any]) -> keras.optimizers.Optimizer:
    if "class_name" not in configuration:
        raise ValueError("it is a configuration without a class_name")
    found = keras.optimizers.deserialize(dict(configuration))
    # Of a class that it does not know Keras returns the name, and a layer's where it is one's.
    if not isinstance(found, keras.optimizers.Optimizer):
        raise ValueError(f"{configuration['class_name']!r} is no optimizer that Keras knows")
    return found


def _class_of(name: str) -> type[keras.optimizers.Optimizer]:
    known = _classes()
    found = known.get(name.replace("_", "").lower())
    if found is None:
        # Those that wrap another optimizer have a name, and no default for it.
        alone = [n for n, made in known.items() if _is_made_of_nothing(made)]
        raise OptionError(f"Keras has no optimizer {name!r}; it has {', '.join(alone)}")
    return found


def _is_made_of_nothing(made: type[keras.optimizers.Optimizer]) -> bool:
    wanted = inspect.signature(made).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in kinds for p in wanted)


def _classes() -> dict[str, type[keras.optimizers.Optimizer]]:
    # keras.optimizers.get does not know all of them.
    base = keras.optimizers.Optimizer
    found = {name: getattr(keras.optimizers, name) for name in dir(keras.optimizers)}
    return {
        name.lower(): made
        for name, made in sorted(found.items())
        if isinstance(made, type) and issubclass(made, base) and made is not base
    }


def makes_dense(optimizer: Any) -> bool:
    """Whether an optimizer makes sparse gradients dense before they are summed.

    Keras scales gradients by a dynamic factor, or by their common norm, as tensors.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return True
    return optimizer.global_clipnorm is not None


def trace(optimizer: Any, weights: Sequence[TrainedWeight]) -> OptimizerStep:
    """Traces what an optimizer does with summed gradients of some weights.

    Args:
        optimizer: A Keras optimizer; it is neither built nor changed.
        weights: What it trains.

    Raises:
        OptionError: It cannot be made again from its configuration, or updates in a branch.
    """
    name = type(optimizer).__name__
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        # It skips or makes the inner one's update, and has counters only.
        optimizer = optimizer.inner_optimizer
        name += f" of {type(optimizer).__name__}"
    configuration = optimizer.get_config()
    around = {key: value for key, value in _AROUND.items() if key in configuration}
    # Outside of any graph and strategy that the caller may be in.
    graph = tf.Graph()
    with graph.as_default():
        try:
            copy = type(optimizer).from_config(configuration | around)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"{type(optimizer).__name__} cannot be made from its get_config(): {error}"
            ) from error
        variables = [_variable(weight) for weight in weights]
        copy.build(variables)
        step, shapes = _traced(copy, variables, weights)
    _check_branches(step, name)
    keys = _keys(weights, variables, copy.variables)
    own = [_stored(keys[id(v)], v) for v in copy.variables if v.shape.rank]
    summing = bool(configuration.get("gradient_accumulation_steps"))
    accumulators = [
        UpdatedVariable(f"{w.name}/accumulator", (), w.shape, w.type_number, True)
        for w in weights
        if summing and not w.overwritten
    ]
    return OptimizerStep(
        name=name,
        view=_view(step, [*variables, *copy.variables], keys, {id(v) for v in variables}),
        gradients=tuple(_gradients(step, weights, shapes)),
        slots=tuple(own),
        accumulators=tuple(accumulators),
        counters=tuple((tuple(v.shape), v.dtype) for v in copy.variables if not v.shape.rank),
    )


def _as_scope(name: str) -> str:
    """A name of what TensorFlow takes in one; that of a weight out of a file may be any."""
    shown = _NOT_IN_A_NAME.sub("_", name)
    return f"v{shown}" if shown[:1] in ("_", "-") else shown


def _variable(weight: TrainedWeight) -> keras.Variable:
    """A variable of the weight's path, in the graph: nothing is allocated."""
    *scopes, own = map(_as_scope, weight.name.split("/"))
    with contextlib.ExitStack() as stack:
        for scope in filter(None, scopes):
            stack.enter_context(keras.name_scope(scope))
        found = keras.Variable(
            initializer="zeros", shape=weight.shape, dtype=weight.dtype, name=own or "weight"
        )
    found.constraint = weight.constraint
    found.overwrite_with_gradient = weight.overwritten
    return found


def _traced(
    optimizer: Any, variables: Sequence[keras.Variable], weights: Sequence[TrainedWeight]
) -> tuple[Any, list[str]]:
    """The FuncGraph of one update, and the ops in it that yield the shapes of tables."""
    shapes: list[str] = []

    def update(*parts: tf.Tensor) -> None:
        given = iter(parts)
        gradients = []
        for weight in weights:
            if weight.sparse:
                values, rows = next(given), next(given)
                shape = tf.constant(weight.shape, tf.int32)
                shapes.append(shape.op.name)
                gradients.append(tf.IndexedSlices(values, rows, shape))
            else:
                gradients.append(next(given))
        optimizer.apply(gradients, variables)

    specs = []
    for weight in weights:
        if weight.sparse:
            specs.append(tf.TensorSpec((None, *weight.shape[1:]), weight.dtype))
            specs.append(tf.TensorSpec((None,), tf.int32))
        else:
            specs.append(tf.TensorSpec(weight.shape, weight.dtype))
    return traced_graphs.traced_unseen(update, specs), shapes


def _check_branches(graph: Any, name: str) -> None:
    for op in graph.get_operations():
        if op.type in CALLS and any(value.dtype == tf.resource for value in op.inputs):
            raise OptionError(
                f"{name} updates inside of a branch or a function of its own ({op.name}): what is"
                " sharded of that shows the traced step only, see tf_wu_shard.reports()"
            )


def _keys(
    weights: Sequence[TrainedWeight],
    variables: Sequence[keras.Variable],
    slots: Sequence[keras.Variable],
) -> dict[int, str]:
    """A name for each variable, by its id; no two have the same."""
    keys = {id(v): weight.name for v, weight in zip(variables, weights, strict=True)}
    names = UniqueNames(keys.values())
    return keys | {id(slot): names.take(slot.path) for slot in slots}


def _stored(key: str, variable: keras.Variable) -> UpdatedVariable:
    return UpdatedVariable(key, (), tuple(variable.shape), number_of(variable.dtype), True)


def _view(
    graph: Any,
    variables: Sequence[keras.Variable],
    keys: Mapping[int, str],
    trained: set[int],
) -> GraphView:
    by_handle = {id(variable.value.handle): variable for variable in variables}
    refs = {}
    for handle, placeholder in function_graph.captured_handles(graph):
        variable = by_handle[id(handle)]
        refs[placeholder.op.name] = VariableRef(
            key=keys[id(variable)],
            replica=0,
            num_replicas=1,
            shape=tuple(variable.shape),
            dtype=number_of(variable.dtype),
            mirrored=True,
            device="",
            trainable=id(variable) in trained,
        )
    return GraphView(
        graph.as_graph_def(),
        variables=refs,
        outputs=[Value(t.op.name, t.value_index) for t in graph.outputs],
        control_outputs=[op.name for op in graph.control_outputs],
        op_def=function_graph.op_def,
        shape_of=lambda value: function_graph.static_shape(graph, value.op, value.index),
    )


def _gradients(
    graph: Any, weights: Sequence[TrainedWeight], shapes: Sequence[str]
) -> Iterator[CarriedReduction]:
    """The gradients among the inputs of the traced function."""
    inputs, tables = iter(graph.inputs), iter(shapes)
    for weight in weights:
        first = next(inputs).op.name
        if not weight.sparse:
            yield CarriedReduction((Value(first),), (Value(first),), 1, (first,))
            continue
        parts = {
            Gathered.VALUES: first,
            Gathered.ROWS: next(inputs).op.name,
            Gathered.SHAPE: next(tables),
        }
        for kind, name in parts.items():
            yield CarriedSlices((Value(name),), (Value(name),), 1, (first,), kind, (0,))
