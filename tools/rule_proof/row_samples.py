"""Calls of an op on a table cut at whole rows, or on entries that name its rows.

Which of an op's operands are tables, entries or the same everywhere is varied; ops that take other
things than values have an entry in a table.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.placement import RowPlacement, What
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.sparse import (
    ALL_OR_NONE,
    LOOK_UP,
    READ_ROWS,
    SEGMENT_SUM,
    SHAPE,
    STRIDED_SLICE,
    UNIQUE,
)
from tools.rule_proof import samples
from tools.rule_proof.samples import Call, definition, values
from tools.rule_proof.tables import ALL, ONCE, Table, table_shapes, tables

# What rows may be numbered with.
_NUMBERED = (np.int32, np.int64)


@dataclasses.dataclass(frozen=True)
class RowCall:
    """One op with values for its operands, some of which depend on the shard.

    Attributes:
        call: The op and the values; of the operand that is a handle, its variable's.
        table: The table, and the entries.
        placements: Where each operand lies; None of what every replica holds.
    """

    call: Call
    table: Table
    placements: tuple[RowPlacement | None, ...]


def row_calls(op_type: str, random: np.random.Generator) -> Iterator[RowCall]:
    """Calls of an op; nothing where no kernel of it runs here."""
    for shape in table_shapes(random):
        if op_type in SPECIAL:
            for table in tables(random, shape, 4, aligned=False):
                yield from SPECIAL[op_type](op_type, random, table)
        if family_of(op_type) is Family.SUM:
            yield from _summed(op_type, random, shape)
        elif family_of(op_type) is Family.ELEMENTWISE:
            yield from _elementwise(op_type, random, shape)


def of_table(shape: tuple[int, ...]) -> RowPlacement:
    """The placement of a table of a shape."""
    return RowPlacement(What.TABLE, shape=shape)


def of_entries(table: Table, entries: str = ALL) -> RowPlacement:
    """The placement of one row for each entry of a list."""
    return RowPlacement(What.ENTRIES, entries, shape=table.shape[1:])


def of_rows(table: Table, entries: str = ALL) -> RowPlacement:
    """The placement of the numbers of the rows that a list's entries name."""
    return RowPlacement(What.ROWS, entries, num_rows=table.shape[0])


def _elementwise(
    op_type: str, random: np.random.Generator, shape: tuple[int, ...]
) -> Iterator[RowCall]:
    for call in _alike(op_type, random, shape):
        narrowest = min((o.itemsize for o in call.operands if o.dtype != np.bool_), default=1)
        for table in tables(random, shape, narrowest, aligned=True):
            yield _placed(call, table, of_table(shape))
    for table in tables(random, shape, 4, aligned=False):
        for call in _alike(op_type, random, (len(table.entries[ALL]), *shape[1:])):
            yield _placed(call, table, of_entries(table))


def _placed(call: Call, table: Table, placement: RowPlacement) -> RowCall:
    return RowCall(call, table, tuple(placement if own else None for own in call.cut))


def _alike(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    """Calls with all operands of one shape, or one of them of a shape that is broadcast to it."""
    if op_type in samples.SPECIAL:
        yield from samples.SPECIAL[op_type](op_type, random, shape)
        return
    count = samples.arity(op_type)
    for dtype in samples.element_types(op_type):
        yield samples.call(op_type, random, shape, [True] * count, dtype)
    if not samples.takes_scalars(op_type):
        return
    for smaller in ((), shape[1:], (1, *shape[1:]), (*shape[:-1], 1), shape):
        whole = int(random.integers(count))
        cut = [number != whole for number in range(count)]
        # An op that does not take such operands is not asked about them.
        with contextlib.suppress(*samples.NOT_TAKEN):
            yield samples.call(op_type, random, shape, cut, dtype, smaller)


def _summed(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[RowCall]:
    """Sums over rows, of numbers such that none is rounded, and inside of rows, of any."""
    truths = definition(op_type).input_arg[0].type == tf.bool.as_datatype_enum
    for table in tables(random, shape, 4, aligned=False):
        of_one = (len(table.entries[ALL]), *shape[1:])
        for placement, own_shape in ((of_table(shape), shape), (of_entries(table), of_one)):
            for axes in _some_axes(op_type, random, len(shape)):
                small = np.asarray(random.integers(-4, 10, own_shape), np.float32)
                found = small if 0 in axes else values(random, own_shape)
                operands = [random.random(own_shape) < random.random() if truths else found]
                attributes: tuple[tuple[str, Any], ...] = ()
                if len(definition(op_type).input_arg) > 1:
                    operands.append(np.array(axes, np.int32))
                    attributes = (("keep_dims", bool(random.integers(2))),)
                cut = (True, *(False for _ in operands[1:]))
                yield _placed(Call(op_type, tuple(operands), cut, attributes), table, placement)


def _some_axes(op_type: str, random: np.random.Generator, rank: int) -> list[tuple[int, ...]]:
    if len(definition(op_type).input_arg) == 1:
        return [tuple(range(rank))]
    inside = {tuple(range(1, rank)), *((axis,) for axis in range(-rank + 1, 0))} - {()}
    return [*{(0,), tuple({0, rank - 1}), tuple(range(rank))}, *inside]


def _segment_sum(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    for dtype in (np.int32, np.int64):
        rows = table.entries[ALL].astype(dtype)
        found = values(random, (len(rows), *table.shape[1:]))
        count = np.array(table.shape[0], np.int32)
        for number in (None, RowPlacement(What.NUM_ROWS)):
            placed = (of_entries(table), of_rows(table), number)
            yield RowCall(Call(op_type, (found, rows, count), (True, True, False)), table, placed)
        places = _places(table).astype(dtype)
        once = np.array(len(table.entries[ONCE]), np.int32)
        into = (RowPlacement(What.PLACES, ALL, ONCE), RowPlacement(What.COUNT, ONCE))
        call = Call(op_type, (found, places, once), (True, True, True))
        yield RowCall(call, table, (of_entries(table), *into))


def _places(table: Table) -> np.ndarray:
    """For each entry, its row's place in the list without repetitions."""
    place_of = {int(row): place for place, row in enumerate(table.entries[ONCE])}
    return np.array([place_of[int(row)] for row in table.entries[ALL]], np.int64)


def _looked_up(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    for entries in (ALL, ONCE):
        rows = table.entries[entries].astype(_NUMBERED[int(random.integers(2))])
        operands = [values(random, table.shape), rows]
        attributes: tuple[tuple[str, Any], ...] = (("dtype", tf.float32),)
        if op_type == LOOK_UP:
            attributes = ()
            operands.append(np.array(0, np.int32))
        cut = (True, True, *(False for _ in operands[2:]))
        placed = (of_table(table.shape), of_rows(table, entries), *(None for _ in operands[2:]))
        yield RowCall(Call(op_type, tuple(operands), cut, attributes), table, placed)


def _once(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    for numbered in (tf.int32, tf.int64):
        rows = table.entries[ALL].astype(_NUMBERED[int(random.integers(2))])
        call = Call(op_type, (rows,), (True,), (("out_idx", numbered),))
        yield RowCall(call, table, (of_rows(table),))


def _shape(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    rows = table.entries[ALL]
    held = values(random, (len(rows), *table.shape[1:]))
    for array, placement in ((rows, of_rows(table)), (held, of_entries(table))):
        for numbered in (tf.int32, tf.int64):
            call = Call(op_type, (array,), (True,), (("out_type", numbered),))
            yield RowCall(call, table, (placement,))


def _first_size(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    sizes = np.array([len(table.entries[ALL]), *table.shape[1:]], np.int32)
    shape = np.array(table.shape, np.int32)
    where = tuple(np.array([n], np.int32) for n in (0, 1, 1))
    for array, what in ((sizes, What.SIZES), (shape, What.TABLE_SHAPE)):
        placement = RowPlacement(what, ALL if what is What.SIZES else "")
        call = Call(op_type, (array, *where), (True,) * 4, (("shrink_axis_mask", 1),))
        yield RowCall(call, table, (placement, None, None, None))
    yield from all_or_none(op_type, random, table, (0, 2**31 - 1))


def all_or_none(
    op_type: str, random: np.random.Generator, table: Table, ends: Sequence[int]
) -> Iterator[RowCall]:
    """A list of entries up to some ends, marked as all of it or nothing."""
    rows = table.entries[ALL]
    held = values(random, (len(rows), *table.shape[1:]))
    for end, (array, placement) in itertools.product(
        ends, ((rows, of_rows(table)), (held, of_entries(table)))
    ):
        where = tuple(np.array([n], np.int32) for n in (0, end, 1))
        call = Call(op_type, (array, *where), (True,) * 4, mark=ALL_OR_NONE)
        listed = table.with_list(f"{ALL} until operand_2", rows[:end])
        yield RowCall(call, listed, (placement, None, None, None))


def _widened(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    rows = table.entries[ALL].astype(np.int32)
    yield RowCall(Call(op_type, (rows,), (True,), (("DstT", tf.int64),)), table, (of_rows(table),))


def _each_reshaped(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    count, row = table.shape[0], int(np.prod(table.shape[1:]))
    for target in ((count, row), (count, 1, row), (count, *reversed(table.shape[1:]))):
        yield _relabelled(Call(op_type, _with_vector(random, table, target), (True, False)), table)


def _with_vector(
    random: np.random.Generator, table: Table, vector: tuple[int, ...]
) -> tuple[np.ndarray, ...]:
    return values(random, table.shape), np.array(vector, np.int32)


def _relabelled(call: Call, table: Table) -> RowCall:
    return _placed(call, table, of_table(call.operands[0].shape))


def _each_expanded(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    for axis in (*range(1, len(table.shape) + 1), -1):
        operands = (values(random, table.shape), np.array(axis, np.int32))
        yield _relabelled(Call(op_type, operands, (True, False)), table)


def _each_squeezed(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    for shape in ((*table.shape, 1), (table.shape[0], 1, *table.shape[1:])):
        yield _relabelled(Call(op_type, (values(random, shape),), (True,)), table)


def _ensured(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    attributes = (("shape", table.shape),)
    yield _relabelled(Call(op_type, (values(random, table.shape),), (True,), attributes), table)


def _to_own_shape(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    yield _relabelled(Call(op_type, _with_vector(random, table, table.shape), (True, False)), table)


def _as_it_is(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    yield _relabelled(Call(op_type, (values(random, table.shape),), (True,)), table)


RowSampler = Callable[[str, np.random.Generator, Table], Iterator[RowCall]]

SPECIAL: dict[str, RowSampler] = {
    SEGMENT_SUM: _segment_sum,
    LOOK_UP: _looked_up,
    READ_ROWS: _looked_up,
    UNIQUE: _once,
    SHAPE: _shape,
    STRIDED_SLICE: _first_size,
    "Cast": _widened,
    "Reshape": _each_reshaped,
    "ExpandDims": _each_expanded,
    "Squeeze": _each_squeezed,
    "EnsureShape": _ensured,
    "BroadcastTo": _to_own_shape,
    **dict.fromkeys(("Identity", "StopGradient", "PreventGradient", "Snapshot"), _as_it_is),
}
