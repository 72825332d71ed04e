"""Takes what batches say of their replica out of them, where a strategy runs a step on them.

A strategy's `run` hands each replica its part of a batch. What that says is left in the replica's
program as an op that nobody reads, with the names of the tensors that it came with.
"""

from __future__ import annotations

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
from tensorflow.python.util import tf_decorator

from tf_wu_shard.tensorflow_private.wrapping import wrap_once


class Mark(NamedTuple):
    """What one replica's program was given.

    Attributes:
        op: The op that yields what a batch says.
        tensors: Names of the tensors that the replica's program was given, scalars left out.
    """

    op: str
    tensors: tuple[str, ...]


# What a function of ours that notes something calls.
_NOTES_FOR = "_wu_shard_notes_for"

_marks: weakref.WeakKeyDictionary[Any, list[Mark]] = weakref.WeakKeyDictionary()

# Where a tf.function that a strategy ran keeps the one that notes first what batches say: a new
# one would be traced anew. Both live as long as either does.
_NOTING_FIRST = "_wu_shard_noting_first"


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
        (args, kwargs), says = _apart((args, kwargs), said)
        if says:
            # What they say is the first argument: what each replica gets of it, it notes.
            on_tpus = isinstance(self.extended, tpu_strategy.TPUExtended)
            fn, args = _noting(fn, said, lifted=not on_tpus), (says, *args)
        return original(self, fn, args, kwargs, *more, **named)

    def validate_run_function(original: Any, fn: Any) -> None:
        # TPUs take functions of TensorFlow outside of another; what it calls is one.
        original(getattr(fn, _NOTES_FOR, fn))

    def reduce(
        original: Any, self: Any, reduce_op: Any, value: Any, *more: Any, **named: Any
    ) -> Any:
        # Keras puts the first batch of all replicas together to learn what shapes it has.
        return original(self, reduce_op, _apart(value, said)[0], *more, **named)

    wrap_once(distribute_lib.StrategyBase, "reduce", reduce)
    wrap_once(distribute_lib.StrategyBase, "run", run)
    wrap_once(tpu_strategy, "validate_run_function", validate_run_function)
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


def _apart(value: Any, said: Said) -> tuple[Any, list[Any]]:
    """Values without what they say, and that; each for all replicas."""
    flat = tf.nest.flatten(value)
    says = []
    for number, one in enumerate(flat):
        of_replicas = one.values if isinstance(one, values_lib.PerReplica) else (one,)
        if isinstance(of_replicas[0], said.kind):
            tensors, heard = zip(*map(said.apart, of_replicas), strict=True)
            several = len(tensors) > 1 or of_replicas[0] is not one
            flat[number] = values_lib.PerReplica(tensors) if several else tensors[0]
            says.append(values_lib.PerReplica(heard) if several else heard[0])
    return (tf.nest.pack_sequence_as(value, flat), says) if says else (value, says)


def _noting(fn: Any, said: Said, *, lifted: bool) -> Any:
    """A function that takes what batches say first, notes it, and does what another does.

    Args:
        fn: The other.
        said: How they say it.
        lifted: Whether the strategy takes a tf.function for the Python function in it.
    """
    if not (lifted and isinstance(fn, polymorphic_function.Function)):
        # As `run` converts it; what `run` is given then stays as it is.
        return _wrapped(fn, ag_ctx.control_status_ctx(), said)
    known = getattr(fn, _NOTING_FIRST, None)
    if known is None:
        status = ag_ctx.Status["ENABLED" if fn._autograph else "DISABLED"]
        noting = _wrapped(fn.python_function, ag_ctx.ControlStatusCtx(status), said)
        traced = fn._clone(python_function=noting)
        # As tf.function does, by which strategies know what they lift out of a replica's program.
        known = tf_decorator.make_decorator(noting, traced, decorator_name="tf.function")
        setattr(fn, _NOTING_FIRST, known)
    return known


def _wrapped(fn: Any, traced_in: Any, said: Said) -> Any:
    converted = autograph.tf_convert(fn, traced_in, convert_by_default=False)

    @tf.autograph.experimental.do_not_convert
    def noting(says: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            raise said.no_graph()
        tensors = tf.nest.flatten((args, kwargs), expand_composites=True)
        # What has no axis has no examples: a learning rate, say, that is given to all.
        given = (one for one in tensors if tf.is_tensor(one) and one.shape.rank != 0)
        names = tuple(one.name for one in given)
        noted = _marks.setdefault(ops.get_default_graph(), [])
        noted += [Mark(tf.identity(one, name="wu_shard_late").op.name, names) for one in says]
        return converted(*args, **kwargs)

    setattr(noting, _NOTES_FOR, fn)
    return noting
