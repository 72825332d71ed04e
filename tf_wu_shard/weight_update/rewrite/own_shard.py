"""What a replica's shard adds to a sum over all, and what it needs of a tensor broadcast over all.

Where a shard is a run of the row-major elements, only the rows in which the run lies are computed
with. Where it is rows of a matrix, the compiler fuses a broadcast and what is cut out of it; a sum
over some axes is taken of the shard in its place among zeros. Padding is never part of a sum: it is
selected away, as garbage times zero may be no zero. Maxima and minima are sums with another
addition, and other zeros: what does not change what it is added to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tf_wu_shard.dtypes import BOOL, FLOAT32, INT32
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds import plain_ops
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.layout import AnyLayout, RowLayout, TileLayout
from tf_wu_shard.placement import Combine

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
    """How parts are added up.

    Attributes:
        at: Where to emit.
        combine: What the addition is.
        dtype: The element type.
    """

    at: Emitter
    combine: Combine
    dtype: int

    def zero(self) -> Value:
        """The scalar that changes nothing that it is added to."""
        zero: float = _ZEROS[self.combine]
        if self.dtype == BOOL:
            zero = self.combine is Combine.MIN
        elif self.dtype == INT32 and zero:
            zero = -(2**31) if self.combine is Combine.MAX else 2**31 - 1
        return self.at.constant(zero, self.dtype)

    def sum(self, value: Value, axes: Sequence[int]) -> Value:
        """The sum of a tensor over some axes."""
        sums = _SUMS_OF_TRUTHS if self.dtype == BOOL else _SUMS
        return self.at.op(sums[self.combine], [value, self.at.constant(list(axes))], "part")

    def padded(self, value: Value, around: Sequence[tuple[int, int]], name: str) -> Value:
        """`value` with so many zeros before and after it along each dimension."""
        if not any(before or after for before, after in around):
            return value
        pairs = self.at.constant([list(pair) for pair in around])
        if self.combine is Combine.SUM:
            return self.at.op("Pad", [value, pairs], name)
        return self.at.op("PadV2", [value, pairs, self.zero()], name)


@dataclasses.dataclass(frozen=True)
class OwnShard:
    """What a replica computes with its shard of a tensor.

    Attributes:
        at: Where to emit.
        dialect: Cuts slices.
        layout: How the tensor is cut. `layout.shape` may be another shape of the same elements than
            the tensor's own.
        number: Which shard it is.
    """

    at: Emitter
    dialect: Dialect
    layout: AnyLayout
    number: int

    def contribution(
        self,
        shard: Value,
        shape: tuple[int, ...],
        axes: tuple[int, ...],
        combine: Combine = Combine.SUM,
    ) -> Value:
        """What the shard adds to the sum of the tensor over some axes.

        Args:
            shard: The shard, of an element type whose sums are precise enough. Of a table, it is
                some of its rows, or of what has one for each row or entry.
            shape: The tensor's logical shape.
            axes: The axes to sum over; of a table, the first is among them.
            combine: What the addition is.

        Returns:
            A tensor of the shape that is left of `shape` without `axes`.
        """
        at, layout = self.at, self.layout
        terms = _Terms(at, combine, at.dtype(shard))
        if isinstance(layout, RowLayout):
            return terms.sum(shard, axes)
        kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        if math.prod(kept) == 1:
            if isinstance(layout, TileLayout):
                shard = self._without_padding(terms, shard, layout)
            total = terms.sum(shard, range(2 if isinstance(layout, TileLayout) else 1))
            return at.reshape(total, kept, "part")
        if isinstance(layout, TileLayout):
            return terms.sum(at.reshape(self._among_zeros(terms, shard), shape, "shape"), axes)
        start, stop = layout.bounds(self.number)
        first, last = _rows(shape, start, stop)
        inner = math.prod(shape[1:])
        rows = terms.padded(shard, [(start - first * inner, last * inner - stop)], "rows")
        part = terms.sum(at.reshape(rows, (last - first, *shape[1:]), "rows"), axes)
        if 0 in axes:
            return part
        around = [(first, shape[0] - last), *((0, 0) for _ in kept[1:])]
        return terms.padded(part, around, "part")

    def broadcast(self, value: Value, own_shape: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        """The own shard of a value broadcast to the tensor's shape; the scope is its name.

        Args:
            value: A tensor that the replica holds whole.
            own_shape: Its shape.
            shape: The shape that it is broadcast to.
        """
        at, layout = self.at, self.layout
        if isinstance(layout, TileLayout):
            return self.dialect.slice_own(at, _broadcast(at, value, shape), layout, self.number)
        start, stop = layout.bounds(self.number)
        first, last = _rows(shape, start, stop)
        # Where it has rows of its own, only those are broadcast.
        if len(own_shape) == len(shape) and own_shape[0] > 1:
            inner = math.prod(own_shape[1:])
            vector = at.run(at.flat(value, "flat"), first * inner, last * inner, "rows")
            value = at.reshape(vector, (last - first, *own_shape[1:]), "rows")
        rows = _broadcast(at, value, (last - first, *shape[1:]))
        begin = start - first * math.prod(shape[1:])
        return at.run(at.flat(rows, "flat"), begin, begin + stop - start, "")

    def _among_zeros(self, terms: _Terms, shard: Value) -> Value:
        """A tensor of `layout.shape` with the shard in its place and zeros elsewhere."""
        assert self.dialect.stacks is not None, "only one program of all replicas cuts into tiles"
        return self.dialect.stacks.embed_own(self.at, shard, self.layout, terms.zero())

    def _without_padding(self, terms: _Terms, shard: Value, layout: TileLayout) -> Value:
        """A shard whose padding is zeros."""
        if not layout.padding:
            return shard
        at = self.at
        ones = _broadcast(at.within("ones"), at.constant(1, FLOAT32), layout.shape)
        held = self.dialect.slice_own(at.within("held"), ones, layout, self.number)
        mask = at.op("Greater", [held, at.constant(0, FLOAT32)], "mask")
        return at.op("SelectV2", [mask, shard, terms.zero()], "selected")


def _rows(shape: tuple[int, ...], start: int, stop: int) -> tuple[int, int]:
    """The rows of the first dimension in which a run of the row-major elements lies."""
    inner = math.prod(shape[1:])
    return start // inner, -(-stop // inner)


def _broadcast(at: Emitter, value: Value, shape: tuple[int, ...]) -> Value:
    return at.op("BroadcastTo", [value, at.constant(list(shape))], "broadcast")
