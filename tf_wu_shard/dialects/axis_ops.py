"""The collectives of a TPU program along one axis of the torus."""

from __future__ import annotations

from typing import Any

from tf_wu_shard.dialects.torus import Groups
from tf_wu_shard.graph import all_gather_module
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.view import Value

_INT32 = 3


def reduce_scatter(
    builder: GraphBuilder, value: Value, groups: Groups, dtype: int, scope: str
) -> Value:
    """The sum over each group; each replica of it has its run of the first dimension."""
    assignment = builder.constant([list(group) for group in groups], device="")
    axis = builder.constant(0, device="")
    return builder.op(
        "XlaReduceScatter",
        [value, assignment, axis],
        name=f"{scope}/axis",
        device="",
        types={"T": dtype},
        strings={"reduce_op": "Add"},
    )


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
