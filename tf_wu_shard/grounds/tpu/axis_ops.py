"""The collectives of a TPU program along one axis of the torus."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard.dtypes import BFLOAT16, FLOAT16, FLOAT32
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import all_gather_module
from tf_wu_shard.grounds.tpu.torus import Groups

# The element types, as DataType numbers, of which tensors are scattered and gathered.
SCATTERED = frozenset({BFLOAT16, FLOAT16, FLOAT32})


def reduce_scatter(
    at: Emitter, matrix: Value, shape: tuple[int, int], axes: Sequence[Groups]
) -> Value:
    """Sums a matrix along one axis after the other; each replica keeps a run of its rows.

    The runs are a dimension of their own. Scattered along its rows, a matrix of some sizes would be
    padded by the compiler, and its shards moved from chip to chip afterwards.

    Args:
        at: Where to emit.
        matrix: What each replica contributes.
        shape: Its shape; its rows are as many runs as the axes make parts, of whole tiles.
        axes: The groups along each axis.
    """
    runs = math.prod(len(groups[0]) for groups in axes)
    rows, columns = shape[0] // runs, shape[1]
    value = at.reshape(matrix, (runs, rows, columns), "runs")
    for groups in axes:
        assignment = at.constant([list(group) for group in groups])
        inputs = [value, assignment, at.constant(0)]
        value = at.op("XlaReduceScatter", inputs, "axis", reduce_op="Add")
    return at.reshape(value, (rows, columns), "run")


def all_gather(at: Emitter, value: Value, shape: tuple[int, int], groups: Groups) -> Value:
    """The values of each group one above the other; `shape` is that of each."""
    dtype = at.dtype(value)
    return at.op(
        "XlaCallModule",
        [value],
        "axis",
        version=all_gather_module.VERSION,
        module=all_gather_module.write(shape, dtype, groups),
        Tout=[dtype],
        Sout=[(shape[0] * len(groups[0]), shape[1])],
        platforms=["TPU"],
        disabled_checks=["platform"],
    )
