"""The HLO of one replica's function, written by TensorFlow's bridge to XLA."""

from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.tensorflow_private import xla_ir
from tf_wu_shard.tpu_compiler.body import Argument, ReplicaBody


class LoweringError(WuShardError, RuntimeError):
    """The step holds something that TensorFlow cannot turn into HLO."""


def hlo_of(body: ReplicaBody) -> bytes:
    """Lowers a replica's function; nothing is run and no value of a variable is needed.

    Args:
        body: The function.

    Returns:
        A serialized HloModuleProto, not optimized. Its parameters are the body's arguments; every
        variable that the step writes shares its memory with a result.

    Raises:
        LoweringError: In one line: an op has no XLA kernel, or what must be a constant is none.
    """
    try:
        return xla_ir.hlo_of(
            body.graph_def,
            tensors={a.name: _spec(a) for a in body.arguments if not a.is_variable},
            variables={a.name: _spec(a) for a in body.arguments if a.is_variable},
            outputs=body.outputs,
            effects=body.effects,
        )
    except (tf.errors.OpError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise LoweringError(f"the step cannot be turned into HLO: {first}") from error


def _spec(argument: Argument) -> tf.TensorSpec:
    return tf.TensorSpec(argument.shape, tf.as_dtype(argument.dtype))
