"""The row numbers of a sparse gradient, in a step that was traced on one device.

A sparse gradient is a list of row numbers and one row of values for each, which replicas put one
after the other. Going backward from what an update writes, the last op that takes numbers of rows
shows them: a write of some rows, or a sum over the entries of each row. They are followed back
through what keeps them, lists each once (`Unique`) or chooses between functions that return them,
to where they were made, as by the gradient of a look-up. Which gradients they belong to is another
question.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Set

from tf_wu_shard.dtypes import INTEGERS
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.one_device.dominators import Dominators
from tf_wu_shard.rules.sparse import (
    BRANCH,
    SAME,
    SEGMENT_SUM,
    SHAPE,
    STRIDED_SLICE,
    UNIQUE,
)
from tf_wu_shard.rules.writes import WRITES, is_fused_update
from tf_wu_shard.weight_update.analysis.row_branches import depending

# Of an update that has more ops, what is farther from its writes is not looked at.
_MOST_OPS = 200
# No numbers of rows pass on through more ops that keep them.
_MOST_STEPS = 100


class _Several:
    """Stands for numbers of rows of several gradients."""


SEVERAL = _Several()


def rows_entering(
    view: GraphView,
    dominators: Dominators,
    writes: Iterable[Op],
    table: tuple[int, ...] | None,
    gradient: Value | None,
) -> Value | None:
    """The row numbers that an update takes.

    Args:
        view: The graph.
        dominators: Tell what each replica has of its own; nothing else is followed.
        writes: What writes the weight and its slots.
        table: The weight's shape.
        gradient: Where all of it enters by one value; what lies before that is none of the update,
            but for a sum over the entries of each row that makes this value for one op alone: an
            optimizer makes a tensor of a sparse gradient for each op that needs one. A fused
            update takes what was one before.

    Returns:
        The numbers, of type int32 or int64; None where the update takes none that are known.
    """
    ops = {op.name: op for op in writes}
    waiting = [(-op.position, op.name) for op in ops.values()]
    heapq.heapify(waiting)
    seen = set(ops)
    for _ in range(_MOST_OPS):
        if not waiting:
            return None
        op = view.ops[heapq.heappop(waiting)[1]]
        ends = gradient is not None and op.name == gradient.op
        taken = _taken(view, op, table)
        if taken is not None and not (ends and _is_made_before(view, op)):
            found = _source(view, taken, table)
            if found is not None:
                return found
        for value in () if ends else op.inputs:
            if value.op not in seen and dominators.of(value) is not None:
                seen.add(value.op)
                heapq.heappush(waiting, (-view.ops[value.op].position, value.op))
    return None


def _taken(view: GraphView, op: Op, table: tuple[int, ...] | None) -> Value | None:
    """The operand by which an op takes numbers of rows; None of one that takes none."""
    write = WRITES.get(op.type)
    if write is not None and write.rows is not None:
        return op.inputs[write.rows]
    if op.type != SEGMENT_SUM:
        return None
    places, result = op.inputs[1], view.shape(Value(op.name))
    if result is None:
        # Of a list without repetitions, how many rows it names is not known; of a table, its shape
        # shows how many it has.
        number = view.producer(op.inputs[2])
        of_table = number.type == STRIDED_SLICE and _is_shape(view, number.inputs[0], table)
        return places if of_table or view.producer(places).type == UNIQUE else None
    return places if table is None or result[:1] == table[:1] else None


def _is_made_before(view: GraphView, op: Op) -> bool:
    """Whether a sparse gradient was made dense before an update looks at it."""
    consumers = view.consumers(Value(op.name))
    return len(consumers) != 1 or is_fused_update(consumers[0][0].type)


def _source(view: GraphView, value: Value, table: tuple[int, ...] | None) -> Value | None:
    """Where numbers of rows were made; None where they are no integers."""
    for _ in range(_MOST_STEPS):
        op = view.producer(value)
        if view.dtype(value) not in INTEGERS:
            return None
        if op.type in SAME:
            value = op.inputs[value.index]
        elif op.type == UNIQUE or (op.type == "Cast" and view.dtype(op.inputs[0]) in INTEGERS):
            value = op.inputs[0]
        elif op.type == BRANCH:
            taken = _returned_from(view, op, value.index, table)
            if len(taken) != 1:
                return None
            value = taken[0]
        else:
            return value
    return None


def _returned_from(
    view: GraphView, op: Op, result: int, table: tuple[int, ...] | None
) -> list[Value]:
    """The integers that a result of a condition depends on, the table's shape left out."""
    return [
        value
        for slot, value in enumerate(op.inputs)
        if slot > 0
        and view.dtype(value) in INTEGERS
        and not _is_shape(view, value, table)
        and result in depending(view, op, slot)
    ]


def _is_shape(view: GraphView, value: Value, table: tuple[int, ...] | None) -> bool:
    op = view.producer(value)
    if op.type == SHAPE:
        return view.shape(op.inputs[0]) == table
    return view.integers(value) == table


def behind_rows(
    view: GraphView, rows: Set[Value], writes: Mapping[str, Iterable[Op]]
) -> dict[str, Value | _Several]:
    """For each op that depends on numbers of rows, by name: on which, or that on several.

    Args:
        view: The graph.
        rows: The numbers.
        writes: For variables, by key, the ops that write them.
    """
    written: dict[str, list[str]] = {}
    for key, ops in writes.items():
        for op in ops:
            written.setdefault(op.name, []).append(key)
    held: dict[str, Value | _Several] = {}
    found: dict[str, Value | _Several] = {}
    for op in view:
        behind: Value | _Several | None = None
        for value in op.inputs:
            ref = view.variables.get(value.op)
            more = held.get(ref.key) if ref is not None else found.get(value.op)
            more = value if value in rows else more
            if more is not None and more != behind:
                behind = more if behind is None else SEVERAL
        if behind is None:
            continue
        found[op.name] = behind
        for key in written.get(op.name, ()):
            held[key] = behind if held.get(key, behind) == behind else SEVERAL
    return found
