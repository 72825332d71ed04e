"""The few array ops that communication is made of, spelled once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tf_wu_shard.dtypes import item_bytes
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import ALIGNMENT_BYTES, Layout
from tf_wu_shard.placement import Combine

_INT32 = 3
_RESOURCE = 20
_INT64 = 9

# Grappler's arithmetic optimizer merges trees of additions into one AddN, in another order, unless
# a node carries this mark of having been merged already (arithmetic_optimizer.cc).
_KEEP_ORDER = "_grappler_ArithmeticOptimizer_AddOpsRewriteStage"

# The op that combines the elements of one tensor.
EXTREMA: dict[Combine, str] = {Combine.MAX: "Max", Combine.MIN: "Min"}


def lane_elements(dtype: int) -> int:
    """Elements that fill one alignment unit; shards begin at multiples of it."""
    return max(1, ALIGNMENT_BYTES // item_bytes(dtype))


def handle_input(builder: GraphBuilder, name: str) -> Value:
    """An input of the graph that is a resource handle."""
    types = {"dtype": _RESOURCE}
    handle = builder.op("Placeholder", [], name=name, device="", types=types)
    builder.nodes[-1].attr["shape"].shape.SetInParent()
    return handle


def flat(builder: GraphBuilder, value: Value, dtype: int, device: str, name: str) -> Value:
    """The elements of `value` as a vector, in row-major order; shares its buffer."""
    return reshape(builder, value, (-1,), dtype, device, name)


def reshape(
    builder: GraphBuilder, value: Value, shape: Sequence[int], dtype: int, device: str, name: str
) -> Value:
    """`value` under another shape; shares its buffer."""
    target = builder.constant(list(shape), device=device, dtype=_INT64)
    types = {"T": dtype, "Tshape": _INT64}
    return builder.op("Reshape", [value, target], name=name, device=device, types=types)


def cast(builder: GraphBuilder, value: Value, source: int, target: int, scope: str) -> Value:
    """`value` in another element type, wherever it is computed."""
    if source == target:
        return value
    types = {"SrcT": source, "DstT": target}
    return builder.op("Cast", [value], name=f"{scope}/cast", device="", types=types)


def run(
    builder: GraphBuilder,
    vector: Value,
    start: int,
    stop: int,
    dtype: int,
    device: str,
    name: str,
) -> Value:
    """Elements `start` to `stop` of a vector; shares its buffer where `start` is aligned."""
    begin = builder.constant([start], device=device, dtype=_INT64)
    size = builder.constant([stop - start], device=device, dtype=_INT64)
    types = {"T": dtype, "Index": _INT64}
    return builder.op("Slice", [vector, begin, size], name=name, device=device, types=types)


def own_part(
    builder: GraphBuilder,
    vector: Value,
    layout: Layout,
    shard: int,
    dtype: int,
    device: str,
    name: str,
) -> Value:
    """One shard, in its own shape, of a tensor that is given as a vector."""
    part = run(builder, vector, *layout.bounds(shard), dtype, device, name)
    shape = layout.shard_shape(shard)
    return part if len(shape) == 1 else reshape(builder, part, shape, dtype, device, f"{name}/rows")


def joined(
    builder: GraphBuilder, vectors: Sequence[Value], dtype: int, device: str, name: str
) -> Value:
    """The vectors one after the other."""
    if len(vectors) == 1:
        return vectors[0]
    axis = builder.constant(0, device=device)
    return builder.op(
        "ConcatV2",
        [*vectors, axis],
        name=name,
        device=device,
        types={"T": dtype, "Tidx": _INT32},
        ints={"N": len(vectors)},
    )


def parted(
    builder: GraphBuilder, vector: Value, sizes: Sequence[int], dtype: int, device: str, name: str
) -> list[Value]:
    """A vector cut into runs of the given sizes, which add up to its length.

    Of a matrix, its rows are cut into such runs.
    """
    if len(sizes) == 1:
        return [vector]
    inputs = [
        vector,
        builder.constant(list(sizes), device=device, dtype=_INT64),
        builder.constant(0, device=device),
    ]
    split = builder.op(
        "SplitV",
        inputs,
        name=name,
        device=device,
        types={"T": dtype, "Tlen": _INT64},
        ints={"num_split": len(sizes)},
    )
    return [Value(split.op, i) for i in range(len(sizes))]


def ordered_sum(
    builder: GraphBuilder, terms: Sequence[Value], dtype: int, device: str, name: str
) -> Value:
    """((t0 + t1) + t2) + ..., rounded after every addition.

    By additions of two: AddN puts in front whichever operand's buffer it may reuse, and which that
    is depends on who else has finished with it (aggregate_ops.cc).
    """
    total = terms[0]
    for term in terms[1:]:
        total = builder.op("AddV2", [total, term], name=name, device=device, types={"T": dtype})
        keep_order(builder)
    return total


def combined(
    builder: GraphBuilder,
    terms: Sequence[Value],
    combine: Combine,
    dtype: int,
    device: str,
    name: str,
) -> Value:
    """Tensors of one shape combined, element by element."""
    if combine is Combine.SUM:
        return ordered_sum(builder, terms, dtype, device, name)
    pack: dict[str, Any] = {"types": {"T": dtype}, "ints": {"N": len(terms), "axis": 0}}
    stacked = builder.op("Pack", terms, name=f"{name}/parts", device=device, **pack)
    inputs, types = [stacked, builder.constant([0], device=device)], {"T": dtype, "Tidx": _INT32}
    return builder.op(EXTREMA[combine], inputs, name=name, device=device, types=types)


def divided(
    builder: GraphBuilder, total: Value, divisor: int, dtype: int, device: str, scope: str
) -> Value:
    """A sum divided by a number, as a mean is made of it; by 1 it is the sum itself."""
    if divisor == 1:
        return total
    operands = [total, builder.constant(divisor, device=device, dtype=dtype)]
    return builder.op("RealDiv", operands, name=f"{scope}/mean", device=device, types={"T": dtype})


def keep_order(builder: GraphBuilder) -> None:
    """Forbids Grappler to merge the addition emitted last with its neighbours."""
    builder.nodes[-1].attr[_KEEP_ORDER].b = True
