"""A `TPUStrategy` on which steps are traced and nothing is ever run.

Answers: for how many replicas and on which torus a step would run, at the price of one replica or
less. Every replica's component of a variable is one and the same object, and a large one has no
value at all, so neither memory nor the time of a trace grows with the replicas (0.03 ms a variable
and replica remain). It does not promise that anything but tracing works: reading a large variable
that nobody assigned raises, as TensorFlow has no value to give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import resource_variable_ops

from tf_wu_shard.tensorflow_private.tpu_strategy import HOST, AbsentTPU, put_on

# Counters, rates and states of random generators are read while a step is built; they are this
# small, and weights that matter are not.
_MOST_ELEMENTS_WITH_A_VALUE = 4096

_KEPT = (
    *("trainable", "name", "constraint", "synchronization", "aggregation"),
    "distribute_strategy",
)


@dataclasses.dataclass(frozen=True)
class _NoValue:
    """Takes the place of an initial value that is not computed."""

    shape: tf.TensorShape
    dtype: tf.DType


def traced_only_strategy(topology: tf.tpu.experimental.Topology) -> tf.distribute.TPUStrategy:
    """A strategy with one replica on each device of a slice.

    Args:
        topology: The slice, as `tpu_strategy.tpu_topology` describes it.

    Returns:
        The strategy; all its replicas are said to stand on the one CPU of this process.
    """
    count = len(topology.device_coordinates.reshape(-1, topology.mesh_rank))
    strategy = tf.distribute.TPUStrategy(AbsentTPU(count, topology))
    make_traced_only(strategy.extended)
    return strategy


def make_traced_only(extended: Any) -> None:
    """Puts every replica of a strategy on this process' CPU and lets them share their variables.

    Args:
        extended: The `extended` of a TPUStrategy that has made no variable yet.
    """
    put_on(extended, [HOST] * len(extended.worker_devices))
    original = extended._create_variable

    def create_variable(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        kwargs["initial_value"] = _without_value(kwargs.get("initial_value"), kwargs.get("dtype"))
        variable = original(_once(next_creator), **kwargs)
        for handle in _handles_of(variable) if variable.trainable else ():
            handle._wu_shard_trainable = True
        return variable

    extended._create_variable = create_variable


def is_traced_only(strategy: Any) -> bool:
    """Whether a strategy's replicas share their variables, as nothing is ever run on it."""
    return "_create_variable" in vars(strategy.extended)


def uses_of_trainable_variables(graph: Any) -> set[str]:
    """Types of the ops that take the handle of a trainable variable, in a TPU cluster or not.

    Args:
        graph: A FuncGraph traced under a strategy that only traces.
    """
    found = set()
    for outside, placeholder in graph.captures:
        if getattr(outside, "_wu_shard_trainable", False):
            for op in placeholder.consumers():
                replicated = op.type == "TPUReplicatedInput"
                found |= {c.type for c in op.outputs[0].consumers()} if replicated else {op.type}
    return found


def _handles_of(variable: Any) -> Iterator[Any]:
    """The resource handles by which a graph can capture a variable; its components are one."""
    for component in getattr(variable, "values", (variable,))[:1]:
        handle = vars(component).get("_handle")
        if handle is not None:
            yield handle
    packed = getattr(variable, "_packed_variable", None)
    if packed is not None:
        yield packed.packed_handle


def _once(next_creator: Callable[..., Any]) -> Callable[..., Any]:
    """A creator that makes the first replica's component and hands it out for all of them."""
    made: list[Any] = []

    def creator(**kwargs: Any) -> Any:
        if not made:
            made.append(_component(next_creator, kwargs))
        return made[0]

    return creator


def _component(next_creator: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    value = kwargs.get("initial_value")
    if not isinstance(value, _NoValue):
        return next_creator(**kwargs)
    return resource_variable_ops.UninitializedVariable(
        shape=value.shape, dtype=value.dtype, **{name: kwargs.get(name) for name in _KEPT}
    )


def _without_value(initial_value: Any, wanted: Any) -> Any:
    """What to create a variable with: its initial value, or for a large one its shape alone."""
    if initial_value is None:
        return None
    shape, dtype = _shape_and_dtype(initial_value)
    elements = shape.num_elements()
    if elements is None or elements <= _MOST_ELEMENTS_WITH_A_VALUE:
        return initial_value
    return _NoValue(shape, dtype if wanted is None else tf.as_dtype(wanted))


def _shape_and_dtype(initial_value: Any) -> tuple[tf.TensorShape, tf.DType]:
    if callable(initial_value):
        # The initializer's ops are made in a graph that is thrown away, and never run.
        with func_graph.FuncGraph("initial_value").as_default():
            initial_value = initial_value()
    if not hasattr(initial_value, "shape") or not hasattr(initial_value, "dtype"):
        initial_value = np.asarray(initial_value)
    return tf.TensorShape(initial_value.shape), tf.as_dtype(initial_value.dtype)
