"""Takes what batches say of their replica out of them, where a strategy runs a step on them.

A strategy's `run` hands each replica its part of a batch. What that says is left in the replica's
program as an op that nobody reads, with the names of the tensors that it came with.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.distribute import distribute_lib, tpu_strategy
from tensorflow.python.distribute import values as values_lib
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import ops

from tf_wu_shard.tensorflow_private.wrapping import wrap_once


class Mark(NamedTuple):
    """What one replica's program was given.

    Attributes:
        op: The op that yields what a batch says.
        tensors: Names of the tensors that the replica's program was given, scalars left out.
    """

    op: str
    tensors: tuple[str, ...]


_marks: weakref.WeakKeyDictionary[Any, list[Mark]] = weakref.WeakKeyDictionary()

# By a tf.function that a strategy ran, the one that takes elements apart first: a strategy traces
# each function that it has not seen.
_taking_apart: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class Said(NamedTuple):
    """How batches say something, and what to do about it.

    Attributes:
        kind: The type of what stands in the place of a batch's first tensor.
        apart: Gives the tensor, and what one of that type says beside it.
        no_graph: Makes the error where a replica's program is not being traced.
    """

    kind: type
    apart: Callable[[Any], tuple[Any, Any]]
    no_graph: Callable[[], Exception]


def install(said: Said) -> None:
    """From now on, every strategy takes such batches apart; may be called again.

    Args:
        said: How they say it.
    """

    def run(
        original: Any,
        self: Any,
        fn: Any,
        args: Any = (),
        kwargs: Any = None,
        *more: Any,
        **named: Any,
    ) -> Any:
        if _holds((args, kwargs), said):
            fn = _function_taking_apart(fn, said)
        return original(self, fn, args, kwargs, *more, **named)

    def reduce(
        original: Any, self: Any, reduce_op: Any, value: Any, *more: Any, **named: Any
    ) -> Any:
        # Keras puts the first batch of all replicas together to learn what shapes it has.
        values = tf.nest.map_structure(lambda one: _of_all_replicas(one, said), value)
        return original(self, reduce_op, values, *more, **named)

    wrap_once(distribute_lib.StrategyBase, "reduce", reduce)
    wrap_once(distribute_lib.StrategyBase, "run", run)
    for own in (tpu_strategy.TPUStrategyV2, tpu_strategy.TPUStrategy, tpu_strategy.TPUStrategyV1):
        wrap_once(own, "run", run)


def marks_of(graph: Any) -> list[Mark]:
    """What was taken apart in a graph.

    Args:
        graph: The FuncGraph.
    """
    return _marks.get(graph, [])


def forget(graph: Any) -> None:
    """Somebody has seen to what was taken apart in a graph."""
    _marks.pop(graph, None)


def _function_taking_apart(fn: Any, said: Said) -> Any:
    if not isinstance(fn, polymorphic_function.Function):
        # As `run` converts it; what `run` is given then stays as it is.
        return _wrapped(fn, ag_ctx.control_status_ctx(), said)
    known = _taking_apart.get(fn)
    if known is None:
        status = ag_ctx.Status["ENABLED" if fn._autograph else "DISABLED"]
        traced_in = ag_ctx.ControlStatusCtx(status)
        known = fn._clone(python_function=_wrapped(fn.python_function, traced_in, said))
        _taking_apart[fn] = known
    return known


def _wrapped(fn: Any, traced_in: Any, said: Said) -> Any:
    converted = autograph.tf_convert(fn, traced_in, convert_by_default=False)

    @tf.autograph.experimental.do_not_convert
    def of_batches(*args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            raise said.no_graph()
        args, kwargs = _apart((args, kwargs), said)
        return converted(*args, **kwargs)

    return functools.wraps(fn)(of_batches) if hasattr(fn, "__name__") else of_batches


def _holds(value: Any, said: Said) -> bool:
    return any(
        isinstance(one, said.kind)
        for part in tf.nest.flatten(value)
        for one in getattr(part, "values", (part,))
    )


def _of_all_replicas(value: Any, said: Said) -> Any:
    """What all replicas have of a tensor, without what it says."""
    if not _holds(value, said):
        return value
    if isinstance(value, values_lib.PerReplica):
        return values_lib.PerReplica([said.apart(one)[0] for one in value.values])
    return said.apart(value)[0]


def _apart(values: Any, said: Said) -> Any:
    """The arguments of one replica without what they say, which is noted."""
    flat = tf.nest.flatten(values)
    heard = []
    for number, one in enumerate(flat):
        if isinstance(one, said.kind):
            flat[number], says = said.apart(one)
            heard.append(says)
    tensors = (one for one in tf.nest.flatten(flat, expand_composites=True) if tf.is_tensor(one))
    # What has no axis has no examples: a learning rate, say, that is given to all.
    names = tuple(one.name for one in tensors if one.shape.rank != 0)
    noted = _marks.setdefault(ops.get_default_graph(), [])
    noted += [Mark(tf.identity(says, name="wu_shard_late").op.name, names) for says in heard]
    return tf.nest.pack_sequence_as(values, flat)
