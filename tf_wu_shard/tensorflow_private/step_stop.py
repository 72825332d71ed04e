"""Being asked before a program runs what may train: a traced function, an eager step, a session.

The callback may end the process there; else the program goes on. It does not promise to see an
eager assignment, which is how weights are loaded, for the update that it may be.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.eager import backprop
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.util import nest

from tf_wu_shard.reachable import reachable

# The classes that update an eager variable, each with methods of its own, and which these are.
VARIABLES = (resource_variable_ops.ResourceVariable, resource_variable_ops.BaseResourceVariable)
UPDATES = frozenset({"assign_add", "assign_sub", "scatter_add", "scatter_sub"})


def before_calls(ask: Callable[[Any], None]) -> None:
    """Asks before every call of a traced function that is not part of another's trace.

    Args:
        ask: Gets the ConcreteFunction; its variables have their values.
    """
    owner = concrete_function.ConcreteFunction
    original = owner._call_flat

    @functools.wraps(original)
    def _call_flat(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            ask(self)
        return original(self, *args, **kwargs)

    owner._call_flat = _call_flat


def before_eager_gradients(ask: Callable[[], None]) -> None:
    """Asks before gradients of trainable variables are computed outside of any function.

    Args:
        ask: What to do.
    """
    owner = backprop.GradientTape
    original = owner.gradient

    @functools.wraps(original)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly() and any(map(_is_trained, nest.flatten(sources))):
            ask()
        return original(self, target, sources, *args, **kwargs)

    owner.gradient = gradient


def before_eager_updates(ask: Callable[[], None]) -> None:
    """Asks before something is added to a trainable variable outside of any function.

    Args:
        ask: What to do.
    """
    for owner in VARIABLES:
        for name in UPDATES & vars(owner).keys():
            ask_before(owner, name, ask, _is_trained)
    ask_before(tf.compat.v1.train.Optimizer, "apply_gradients", ask)


def ask_before(
    owner: Any, name: str, ask: Callable[[], None], of: Callable[[Any], bool] = lambda _: True
) -> None:
    """Asks before a method is called outside of any function.

    Args:
        owner: The class.
        name: The method.
        ask: What to do.
        of: Of which objects.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly() and of(self):
            ask()
        return original(self, *args, **kwargs)

    setattr(owner, name, method)


def _is_trained(source: Any) -> bool:
    # A Keras variable holds TensorFlow's.
    held = getattr(source, "value", None)
    own = source if callable(held) or held is None else held
    return isinstance(own, tf.Variable) and bool(own.trainable)


def before_session_runs(ask: Callable[[set[str]], None]) -> None:
    """Asks before a session of TensorFlow 1 runs anything.

    Args:
        ask: Gets the types of all ops that it would run.
    """
    owner = session.BaseSession
    original = owner.run

    @functools.wraps(original)
    def run(self: Any, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        ask(_types_behind(self.graph, fetches))
        return original(self, fetches, *args, **kwargs)

    owner.run = run


def _types_behind(graph: Any, fetches: Any) -> set[str]:
    starts = []
    for fetched in nest.flatten(fetches):
        found = fetched
        if isinstance(fetched, str):
            found = graph.as_graph_element(fetched)
        starts.append(getattr(found, "op", found))
    ops = (found for found in starts if isinstance(found, tf.Operation))
    behind = reachable(ops, lambda op: [*(tensor.op for tensor in op.inputs), *op.control_inputs])
    return {op.type for op in behind}


def concrete_functions() -> list[Any]:
    """Every ConcreteFunction alive in this process; walks all objects, so not for every day."""
    return [o for o in gc.get_objects() if isinstance(o, concrete_function.ConcreteFunction)]
