"""The sparse gradients of a step: a list of rows of a table, of each replica one of its own length.

A replica that hands in nothing hands in an empty list, and what waits is a list, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.partial_sums.steps.batch_flow import BatchFlow
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import WRITES, num_written
from tf_wu_shard.step.reductions import GradientReduction

_ADDING_ROWS = frozenset({"ResourceScatterAdd", "ResourceScatterSub"})

_READING_ROWS = frozenset({"ResourceGather", "ResourceGatherNd"})


@dataclasses.dataclass(frozen=True)
class Entries:
    """One sparse gradient.

    Attributes:
        table: What users call the variable that it updates.
        key: That variable's key in the step; None where it is not known.
        parts: What is known of it and of its entries: reductions of which each yields one part.
    """

    table: str
    key: str | None
    parts: dict[Gathered, GradientReduction]

    def has_fixed_rows(self, view: GraphView, flow: BatchFlow) -> bool:
        """Whether its entries are of the same rows in every step, as where positions are looked up.

        Args:
            view: The step.
            flow: What its values follow from.

        Raises:
            WuShardError: They are as many in every step, but of other rows.
        """
        rows = self.parts[Gathered.ROWS].operands
        open_ = [view.shape(operand) is None for operand in rows]
        if all(open_):
            return False
        if any(open_) or any(flow.of(operand) for operand in rows):
            raise WuShardError(
                f"the sparse gradient of {self.table} has as many rows in every step, as the step"
                " is traced, and not always the same: a late replica cannot hand in fewer; leave"
                " the size of a batch open, without drop_remainder"
            )
        return True

    def check_rows_alone(self, view: GraphView) -> None:
        """Raises WuShardError where a row that gets a zero is another afterwards.

        A late replica hands in a zero for row 0. Whoever adds it up leaves the row as it was; who
        does a step of an optimizer on each row that is named does not.

        Args:
            view: The step.
        """
        for value in reachable(self.parts[Gathered.ROWS].results, lambda v: following(view, v)):
            for op, _ in view.consumers(value):
                write = WRITES.get(op.type)
                adds = write is not None and (write.is_plain or op.type in _ADDING_ROWS)
                if op.type in _READING_ROWS or not (write is None or adds):
                    raise WuShardError(
                        f"{op.type} does a step on no rows of {self.table} but those that are"
                        " named: for a late replica it would do one on row 0; take an optimizer of"
                        " Keras 3, which does it on all rows"
                    )

    @property
    def lists(self) -> list[GradientReduction]:
        """The parts that have a number or a row of numbers for each entry."""
        return [self.parts[part] for part in (Gathered.VALUES, Gathered.ROWS)]


def entries_in(view: GraphView, reductions: Iterable[GradientReduction]) -> list[Entries]:
    """The sparse gradients among sums over replicas.

    Args:
        view: The step.
        reductions: All of its sums.
    """
    found: dict[tuple[str, ...], dict[Gathered, GradientReduction]] = {}
    for one in reductions:
        if one.gathered is not None:
            found.setdefault(one.carriers, {})[one.gathered] = one
    return [Entries(*_table(view, parts[Gathered.VALUES]), parts) for parts in found.values()]


def _table(view: GraphView, values: GradientReduction) -> tuple[str, str | None]:
    """The name and the key of the variable that entries update, or of a slot of it."""
    written = [
        view.variables[handle.op]
        for value in reachable(values.results[:1], lambda v: following(view, v))
        for op, _ in view.consumers(value)
        for handle in op.inputs[: num_written(op.type)]
        if handle.op in view.variables
    ]
    found = min(written, key=lambda ref: not ref.trainable, default=None)
    return (found.name, found.key) if found is not None else (values.carriers[0], None)


def following(view: GraphView, value: Value) -> list[Value]:
    """What the ops that take a value yield."""
    return [result for op, _ in view.consumers(value) for result in view.results(op.name)]
