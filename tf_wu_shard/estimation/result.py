"""What a training takes, as frozen data, and as a table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from tf_wu_shard.report.quantities import byte_text
from tf_wu_shard.report.report import Bytes, Report, facts, held_lines, percent_text, variable_lines


@dataclasses.dataclass(frozen=True)
class ReplicaEstimate:
    """What one of some number of replicas holds, sends and receives.

    All are bytes, of the fullest replica, unsharded and sharded.

    Attributes:
        num_replicas: How many replicas there are.
        weights: The trained weights.
        slots: The optimizer's variables of one dimension at least; gradient accumulators are
            among them, and stay whole.
        summed_gradients: The gradients summed over the replicas, as the update reads them.
        wire: What reaches a replica per step; see `tf_wu_shard.Report.wire_bytes`.
        report: What would be sharded, how, and why not the rest; nothing is emitted.
    """

    num_replicas: int
    weights: Bytes
    slots: Bytes
    summed_gradients: Bytes
    wire: Bytes
    report: Report


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What training takes, for one or more numbers of replicas.

    Attributes:
        optimizer: The optimizer's class.
        variables: How many weights are trained.
        elements: How many elements they have together.
        gradient_bytes: Bytes of a replica's own gradients, before they are summed; whole, sharded
            or not.
        other_bytes: Bytes of the model's variables that are not trained; whole.
        counter_bytes: Bytes of the optimizer's variables without a dimension: its step, its
            learning rate; whole.
        rows: What it takes for each number of replicas that was asked for, in that order.
        notes: What is not counted, or taken for granted.
    """

    optimizer: str
    variables: int
    elements: int
    gradient_bytes: int
    other_bytes: int
    counter_bytes: int
    rows: tuple[ReplicaEstimate, ...]
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """The estimate as a JSON object; its keys are the attributes' names, sizes are bytes."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"{self.optimizer}, {self.variables} weights, {self.elements:,} elements; on the"
            " fullest replica:"
        )
        yield (
            f"  own gradients {byte_text(self.gradient_bytes)}, variables not trained"
            f" {byte_text(self.other_bytes)}, counters {byte_text(self.counter_bytes)}"
        )
        yield from _table(self.rows)
        if len(self.rows) == 1:
            report = self.rows[0].report
            yield from (f"  {fact}" for fact in (*held_lines(report), *facts(report)))
            yield from variable_lines(report)
        yield from (f"note: {note}" for note in self.notes)


COLUMNS = ("replicas", "sharded", "weights", "slots", "summed gradients", "wire a step")


def _table(rows: tuple[ReplicaEstimate, ...]) -> Iterator[str]:
    cells = [COLUMNS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'   '.join(padded)}".rstrip()


def _cells(row: ReplicaEstimate) -> tuple[str, ...]:
    total = len(row.report.variables) + len(row.report.left_alone)
    return (
        str(row.num_replicas),
        f"{percent_text(row.report.elements)}, {len(row.report.variables)} of {total}",
        *map(_change, (row.weights, row.slots, row.summed_gradients, row.wire)),
    )


def _change(bytes_: Bytes) -> str:
    before, after = byte_text(bytes_.unsharded), byte_text(bytes_.sharded)
    return before if bytes_.unsharded == bytes_.sharded else f"{before} -> {after}"
