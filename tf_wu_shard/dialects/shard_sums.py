"""What a replica's shard adds to a sum over all, and what it needs of a tensor broadcast over all.

Where a shard is a run of the row-major elements, only the rows are computed with that the run lies
in. Where it is rows of a matrix, the compiler fuses a broadcast and what is cut out of it; a sum
over some axes is taken of the shard in its place among zeros. Padding is never part of a sum: it is
selected away, as garbage times zero may be no zero. Maxima and minima are sums with another
addition, and other zeros: what does not change what it is added to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.dialects import columns, plain_ops
from tf_wu_shard.dialects.base import Dialect
from tf_wu_shard.dialects.table_layout import TableLayout
from tf_wu_shard.dtypes import BOOL, INT32
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import AnyLayout, RowLayout
from tf_wu_shard.placement import Combine

_INT32 = 3
_FLOAT32 = 1

# What sums up the elements of a tensor, and of one of truth values; and the zero of that addition.
_SUMS = {Combine.SUM: "Sum", **plain_ops.EXTREMA}
_SUMS_OF_TRUTHS = {Combine.MAX: "Any", Combine.MIN: "All"}
_ZEROS: dict[Combine, float] = {
    Combine.SUM: 0,
    Combine.MAX: -math.inf,
    Combine.MIN: math.inf,
}


@dataclasses.dataclass(frozen=True)
class _Terms:
    """What is added up, and how.

    Attributes:
        builder: Where to emit.
        combine: What the addition is.
        dtype: The element type.
    """

    builder: GraphBuilder
    combine: Combine
    dtype: int

    def zero(self, device: str) -> Value:
        """The scalar that changes nothing that it is added to."""
        zero: float = _ZEROS[self.combine]
        if self.dtype == BOOL:
            zero = self.combine is Combine.MIN
        elif self.dtype == INT32 and zero:
            zero = -(2**31) if self.combine is Combine.MAX else 2**31 - 1
        return self.builder.constant(zero, device=device, dtype=self.dtype)

    def sum(self, value: Value, axes: Sequence[int], device: str, scope: str) -> Value:
        """The sum of a tensor over some axes."""
        over = self.builder.constant(list(axes), device=device)
        op_type, types = _SUMS[self.combine], {"T": self.dtype, "Tidx": _INT32}
        if self.dtype == BOOL:
            op_type, types = _SUMS_OF_TRUTHS[self.combine], {"Tidx": _INT32}
        emit: dict[str, Any] = {"name": f"{scope}/part", "device": device, "types": types}
        return self.builder.op(op_type, [value, over], **emit)

    def padded(
        self, value: Value, around: Sequence[tuple[int, int]], device: str, name: str
    ) -> Value:
        """`value` with so many zeros before and after it along each dimension."""
        if not any(before or after for before, after in around):
            return value
        pairs = self.builder.constant([list(pair) for pair in around], device=device)
        types = {"T": self.dtype, "Tpaddings": _INT32}
        emit: dict[str, Any] = {"name": name, "device": device, "types": types}
        if self.combine is Combine.SUM:
            return self.builder.op("Pad", [value, pairs], **emit)
        return self.builder.op("PadV2", [value, pairs, self.zero(device)], **emit)


def contribution(
    builder: GraphBuilder,
    dialect: Dialect,
    shard: Value,
    layout: AnyLayout,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    dtype: int,
    replica: int,
    device: str,
    scope: str,
    combine: Combine = Combine.SUM,
) -> Value:
    """What a replica's shard adds to the sum of a tensor over some axes.

    Args:
        builder: Where to emit.
        dialect: Cuts slices.
        shard: The replica's shard of the tensor.
        layout: How the tensor is cut. Of a table, the shard is some of its rows, or of what has
            one for each row or entry.
        shape: The tensor's logical shape; `layout.shape` may be another one of the same elements.
        axes: The axes to sum over; of a table, the first is among them.
        dtype: The element type, one whose sums are precise enough.
        replica: Whose shard it is.
        device: Where the replica computes.
        scope: Name scope of the emitted ops.
        combine: What the addition is.

    Returns:
        A tensor of the shape that is left of `shape` without `axes`.
    """
    terms = _Terms(builder, combine, dtype)
    if isinstance(layout, TableLayout):
        return terms.sum(shard, axes, device, scope)
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    if math.prod(kept) == 1:
        if isinstance(layout, RowLayout):
            shard = _without_padding(terms, dialect, shard, layout, replica, scope)
        every = range(2 if isinstance(layout, RowLayout) else 1)
        total = terms.sum(shard, every, device, scope)
        return plain_ops.reshape(builder, total, kept, dtype, device, f"{scope}/part")
    if isinstance(layout, RowLayout):
        whole = _in_its_place(terms, shard, layout, scope)
        whole = plain_ops.reshape(builder, whole, shape, dtype, device, f"{scope}/shape")
        return terms.sum(whole, axes, device, scope)
    start, stop = layout.bounds(replica)
    first, last = _rows(shape, start, stop)
    inner = math.prod(shape[1:])
    around = [(start - first * inner, last * inner - stop)]
    rows = terms.padded(shard, around, device, f"{scope}/rows")
    window = (last - first, *shape[1:])
    rows = plain_ops.reshape(builder, rows, window, dtype, device, f"{scope}/rows")
    part = terms.sum(rows, axes, device, scope)
    if 0 in axes:
        return part
    around = [(first, shape[0] - last), *((0, 0) for _ in kept[1:])]
    return terms.padded(part, around, device, f"{scope}/part")


def broadcast_own(
    builder: GraphBuilder,
    dialect: Dialect,
    value: Value,
    own_shape: tuple[int, ...],
    shape: tuple[int, ...],
    layout: AnyLayout,
    dtype: int,
    replica: int,
    device: str,
    scope: str,
) -> Value:
    """The own shard of a tensor broadcast to another shape.

    Args:
        builder: Where to emit.
        dialect: Cuts slices.
        value: A tensor that the replica holds whole.
        own_shape: Its shape.
        shape: The shape that it is broadcast to; `layout.shape` may be another one of the same
            elements.
        layout: How the result is cut.
        dtype: The element type.
        replica: Which shard.
        device: Where the replica computes.
        scope: Name scope of the emitted ops.
    """
    if isinstance(layout, RowLayout):
        whole = _broadcast(builder, value, shape, dtype, device, scope)
        return dialect.slice_own(builder, whole, layout, dtype, replica, scope)
    start, stop = layout.bounds(replica)
    first, last = _rows(shape, start, stop)
    # Where it has rows of its own, only those are broadcast.
    if len(own_shape) == len(shape) and own_shape[0] > 1:
        inner = math.prod(own_shape[1:])
        vector = plain_ops.flat(builder, value, dtype, device, f"{scope}/flat")
        bounds = (first * inner, last * inner)
        vector = plain_ops.run(builder, vector, *bounds, dtype, device, f"{scope}/rows")
        window = (last - first, *own_shape[1:])
        value = plain_ops.reshape(builder, vector, window, dtype, device, f"{scope}/rows")
    rows = _broadcast(builder, value, (last - first, *shape[1:]), dtype, device, scope)
    vector = plain_ops.flat(builder, rows, dtype, device, f"{scope}/flat")
    begin = start - first * math.prod(shape[1:])
    return plain_ops.run(builder, vector, begin, begin + stop - start, dtype, device, scope)


def _rows(shape: tuple[int, ...], start: int, stop: int) -> tuple[int, int]:
    """The rows of the first dimension in which a run of the row-major elements lies."""
    inner = math.prod(shape[1:])
    return start // inner, -(-stop // inner)


def _without_padding(
    terms: _Terms, dialect: Dialect, shard: Value, layout: RowLayout, replica: int, scope: str
) -> Value:
    """A shard whose padding is zeros."""
    if not layout.padding:
        return shard
    builder = terms.builder
    one = builder.constant(1, device="", dtype=_FLOAT32)
    ones = _broadcast(builder, one, layout.shape, _FLOAT32, "", f"{scope}/ones")
    held = dialect.slice_own(builder, ones, layout, _FLOAT32, replica, f"{scope}/held")
    zero = builder.constant(0, device="", dtype=_FLOAT32)
    types = {"T": _FLOAT32}
    mask = builder.op("Greater", [held, zero], name=f"{scope}/mask", device="", types=types)
    types = {"T": terms.dtype}
    inputs = [mask, shard, terms.zero("")]
    return builder.op("SelectV2", inputs, name=f"{scope}/selected", device="", types=types)


def _in_its_place(terms: _Terms, shard: Value, layout: RowLayout, scope: str) -> Value:
    """A tensor of `layout.shape` with the replica's shard in its place and zeros elsewhere."""
    builder, dtype = terms.builder, terms.dtype
    rows, width = layout.shard_shape(0)
    shape = (rows * layout.num_shards, width)
    zeros = columns.filled(builder, shape, dtype, scope, terms.zero(""))
    begin = columns.own_begin(builder, layout, scope)
    types = {"T": dtype, "Tindices": _INT32}
    inputs = [zeros, shard, begin]
    name = f"{scope}/place"
    matrix = builder.op("XlaDynamicUpdateSlice", inputs, name=name, device="", types=types)
    return columns.whole_of_rows(builder, matrix, layout, dtype, scope)


def _broadcast(
    builder: GraphBuilder,
    value: Value,
    shape: tuple[int, ...],
    dtype: int,
    device: str,
    scope: str,
) -> Value:
    target = builder.constant(list(shape), device=device)
    types = {"T": dtype, "Tidx": _INT32}
    name = f"{scope}/broadcast"
    return builder.op("BroadcastTo", [value, target], name=name, device=device, types=types)
