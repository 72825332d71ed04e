"""The collectives of a TPU program along one axis of the torus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.dialects import plain_ops
from tf_wu_shard.dialects.torus import Groups
from tf_wu_shard.dtypes import BFLOAT16, FLOAT16, FLOAT32
from tf_wu_shard.graph import all_gather_module
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value

# The element types, as DataType numbers, of which tensors are scattered and gathered.
SCATTERED = frozenset({BFLOAT16, FLOAT16, FLOAT32})


def reduce_scatter(
    builder: GraphBuilder,
    matrix: Value,
    shape: tuple[int, int],
    axes: Sequence[Groups],
    dtype: int,
    scope: str,
) -> Value:
    """Sums a matrix along one axis after the other; each replica keeps a run of its rows.

    The runs are a dimension of their own. Scattered along its rows, a matrix of some sizes would be
    padded by the compiler, and its shards moved from chip to chip afterwards.

    Args:
        builder: Where to emit.
        matrix: What each replica contributes.
        shape: Its shape; its rows are as many runs as the axes make parts, of whole tiles.
        axes: The groups along each axis.
        dtype: Its element type.
        scope: Name scope of the emitted ops.
    """
    runs = math.prod(len(groups[0]) for groups in axes)
    rows, columns = shape[0] // runs, shape[1]
    value = plain_ops.reshape(builder, matrix, (runs, rows, columns), dtype, "", f"{scope}/runs")
    dimension = builder.constant(0, device="")
    for groups in axes:
        assignment = builder.constant([list(group) for group in groups], device="")
        value = builder.op(
            "XlaReduceScatter",
            [value, assignment, dimension],
            name=f"{scope}/axis",
            device="",
            types={"T": dtype},
            strings={"reduce_op": "Add"},
        )
    return plain_ops.reshape(builder, value, (rows, columns), dtype, "", f"{scope}/run")


def all_gather(
    builder: GraphBuilder,
    value: Value,
    shape: tuple[int, int],
    groups: Groups,
    dtype: int,
    scope: str,
) -> Value:
    """The values of each group one above the other; `shape` is that of each."""
    module = all_gather_module.write(shape, dtype, groups)
    gathered = builder.op(
        "XlaCallModule",
        [value],
        name=f"{scope}/axis",
        device="",
        ints={"version": all_gather_module.VERSION},
        strings={"module": module},
    )
    attr: Any = builder.nodes[-1].attr
    attr["Tin"].list.type.append(dtype)
    attr["Tout"].list.type.append(dtype)
    described = attr["Sout"].list.shape.add()
    for size in (shape[0] * len(groups[0]), shape[1]):
        described.dim.add().size = size
    attr["platforms"].list.s.append(b"TPU")
    attr["disabled_checks"].list.s.append(b"platform")
    return gathered
