"""A picture of an update as two charts: what every replica does without sharding, and with it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

from tf_wu_shard.inspection.answers.answer import PictureOp, PictureTensor, UpdatePicture
from tf_wu_shard.inspection.formats.text import printable
from tf_wu_shard.report.flow_chart import FlowChart, FlowEdge, FlowRow, Flows, Tone
from tf_wu_shard.report.quantities import byte_text, shape_text
from tf_wu_shard.report.report import slot_label

# More lines than that are no picture: of the ops for one write, and of writes.
_MOST_OPS_EACH = 12
_MOST_WRITES = 6
_SHOWN_AT_EACH_END = 4

_ONE_DEVICE = (
    "The graph was traced on one device and sums no gradient: the sum is drawn where it would be."
)


def update_flows(picture: UpdatePicture) -> Flows:
    """The update before and after.

    Args:
        picture: The update as data.

    Returns:
        The charts without and with sharding; the same ops stand on lines that correspond.
    """
    summed = all(gradient.sum_op for gradient in picture.gradients)
    assumed = "" if summed else f" {_ONE_DEVICE}"
    share = "its owner does" if picture.owned else "each replica does its shard of"
    return Flows(
        title=f"One update, as the graph has it: {printable(picture.variable)}",
        text=(
            f"Its {len(picture.ops):,} ops, and at the right of each what one replica computes:"
            f" without sharding all of it; with sharding {share} the same update. Dashed lines go"
            f" by way of a variable.{assumed}"
        ),
        charts=(
            _Drawing(picture, sharded=False).chart(),
            _Drawing(picture, sharded=True).chart(),
        ),
    )


def value_text(tensor: PictureTensor | None) -> str:
    """A value's shape and element type; nothing where it is not known."""
    return "" if tensor is None else f"{shape_text(tensor.shape)} {tensor.dtype}"


def size_text(tensor: PictureTensor | None) -> str:
    """Its size: `4.10 kB`; nothing where it is not known."""
    return "" if tensor is None else byte_text(tensor.bytes)


@dataclasses.dataclass(frozen=True)
class _Line:
    """Ops that stand on one line: one, or a run of those that are not shown each."""

    ops: tuple[int, ...]


class _Drawing:
    def __init__(self, picture: UpdatePicture, *, sharded: bool) -> None:
        self._picture = picture
        self._sharded = sharded
        self._rows: list[FlowRow] = []
        self._edges: dict[tuple[int, int], bool] = {}
        self._row_of: dict[int, int] = {}

    def chart(self) -> FlowChart:
        """The drawing."""
        picture, n = self._picture, self._picture.replicas
        entry = self._entry()
        self._update(entry)
        self._exit()
        where = "the owner" if self._sharded and picture.owned else f"each of {n:,} replicas"
        title = f"With sharding, on {where}" if self._sharded else f"Without sharding, on {where}"
        edges = tuple(FlowEdge(a, b, stored) for (a, b), stored in self._edges.items())
        return FlowChart(title, tuple(self._rows), edges)

    def _row(self, row: FlowRow) -> int:
        self._rows.append(row)
        return len(self._rows) - 1

    def _station(self, tone: Tone, title: str, name: str, held: PictureTensor) -> int:
        return self._row(FlowRow(tone, title, printable(name), value_text(held), size_text(held)))

    def _entry(self) -> list[int]:
        """The gradients and their sums; returns the sums' lines."""
        found = []
        for gradient in self._picture.gradients:
            start = self._station("value", "gradient", gradient.op, gradient.whole)
            title, name, held = "all-reduce", gradient.sum_op or "the whole sum", gradient.whole
            if self._sharded:
                title, name = "reduce-scatter", "its own shard of the sum"
                held = gradient.shard
                if self._picture.owned:
                    title, name = "reduce to the owner", "the whole sum"
            end = self._station("exchange", title, name, held)
            self._edge(start, end)
            found.append(end)
        return found

    def _update(self, entry: Sequence[int]) -> None:
        """The ops, those for one write under a heading of their own."""
        ops = self._picture.ops
        parts = list(dict.fromkeys(op.part for op in ops))
        shown = parts if len(parts) <= _MOST_WRITES else parts[: _MOST_WRITES - 1]
        for lane, part in enumerate(shown, 1):
            own = [position for position, op in enumerate(ops) if op.part == part]
            self._row(self._heading(part, lane))
            for line in _lines(own):
                self._op_line(line, lane, entry)
        rest = [position for position, op in enumerate(ops) if op.part not in shown]
        if rest:
            lane, heading = len(shown) + 1, f"{len(parts) - len(shown)} more writes"
            self._row(FlowRow("heading", heading, lane=lane, inside=True))
            self._op_line(_Line(tuple(rest)), lane, entry)

    def _heading(self, part: int, lane: int) -> FlowRow:
        writes = {op.part: op.writes_for for op in self._picture.ops}
        target = writes[part]
        if not target:
            return FlowRow("heading", "for other ops of the step", lane=lane, inside=True)
        own = [p for p, variable in sorted(writes.items()) if variable == target]
        which = f", write {own.index(part) + 1} of {len(own)}" if len(own) > 1 else ""
        weight = self._picture.variable
        name = "weight" if target == weight else printable(slot_label(target, weight))
        kept = "stays in shards" if self._sharded and target in self._picture.in_shards else ""
        return FlowRow("heading", f"the new {name}{which}", "", kept, lane=lane, inside=True)

    def _op_line(self, line: _Line, lane: int, entry: Sequence[int]) -> None:
        ops = [self._picture.ops[position] for position in line.ops]
        row = self._row(_op_row(ops, lane, sharded=self._sharded))
        for position, op in zip(line.ops, ops, strict=True):
            self._row_of[position] = row
            for gradient in op.gradients:
                self._edge(entry[gradient], row)
            for read in op.reads:
                self._edge(self._row_of[read], row)
            if op.follows is not None:
                self._edge(self._row_of[op.follows], row, stored=True)

    def _exit(self) -> None:
        picture = self._picture
        writes = [
            self._row_of[position]
            for position, op in enumerate(picture.ops)
            if op.writes and op.variable == picture.variable
        ]
        name, held = picture.variable, picture.weight
        last = writes[-1] if writes else None
        if self._sharded:
            if picture.weight_in_shards:
                last = self._after(last, "value", "weight, in shards", name, picture.weight_shard)
            title = "broadcast from the owner" if picture.owned else "all-gather"
            when = "where it is read" if picture.weight_in_shards else "after the update"
            held = picture.gathered
            last = self._after(last, "exchange", title, when, held)
        self._after(last, "value", "weight", name, held)

    def _after(
        self, last: int | None, tone: Tone, title: str, name: str, held: PictureTensor
    ) -> int:
        row = self._station(tone, title, name, held)
        self._edge(last, row)
        return row

    def _edge(self, source: int | None, target: int, *, stored: bool = False) -> None:
        if source is not None and source != target:
            self._edges[source, target] = stored and self._edges.get((source, target), True)


def _lines(own: Sequence[int]) -> list[_Line]:
    if len(own) <= _MOST_OPS_EACH:
        return [_Line((position,)) for position in own]
    first, last = own[:_SHOWN_AT_EACH_END], own[-_SHOWN_AT_EACH_END:]
    between = own[_SHOWN_AT_EACH_END:-_SHOWN_AT_EACH_END]
    return [*(_Line((p,)) for p in first), _Line(tuple(between)), *(_Line((p,)) for p in last)]


def _op_row(ops: Sequence[PictureOp], lane: int, *, sharded: bool) -> FlowRow:
    if len(ops) > 1:
        counted = collections.Counter(op.type for op in ops).most_common()
        types = ", ".join(f"{count} {op_type}" for op_type, count in counted)
        return FlowRow("step", f"{len(ops)} ops", printable(types), lane=lane, inside=True)
    (op,) = ops
    title = printable(op.type)
    if sharded and op.summed:
        title += ", then all-reduce"
    held = op.shard if sharded else op.whole
    tone: Tone = "write" if op.writes else "step"
    name, value, size = printable(op.name), value_text(held), size_text(held)
    return FlowRow(tone, title, name, value, size, lane, inside=True)
