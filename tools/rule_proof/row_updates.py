"""The proof of ops that write the rows of a table that entries name, and of whole tables' writes.

A scatter is run on the whole table with all entries, and on each shard with the entries that name
its rows: into the shard's variable, as what it does to a value, and by its rows' numbers in the
whole table, shard after shard. A sparse fused update is run on variables that hold the shard's
named rows alone, as the rewrite emits it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tf_wu_shard.placement import RowPlacement, What
from tf_wu_shard.rules.writes import WRITES
from tools.rule_proof import updates
from tools.rule_proof.samples import run_op, values
from tools.rule_proof.tables import ALL, ONCE, Table, table_shapes, tables


def disagreements(op_type: str, random: np.random.Generator) -> Iterator[str | None]:
    """For each call of a write, how the shards' variables differ from the whole one's."""
    for shape in table_shapes(random):
        for table in tables(random, shape, 4, aligned=False):
            if WRITES[op_type].rows is None:
                operands = [values(random, shape), values(random, shape)]
                yield updates.disagreement(op_type, operands, table.layout)
            elif WRITES[op_type].is_fused:
                yield _applied(op_type, random, table)
            else:
                yield _scattered(op_type, random, table)


def _scattered(op_type: str, random: np.random.Generator, table: Table) -> str | None:
    rows, before = table.entries[ALL].astype(np.int32), values(random, table.shape)
    held = values(random, (len(rows), *table.shape[1:]))
    (whole,) = updates.applied(op_type, [before, rows, held], 1)
    own = [_of_shard(table, (before, rows, held), shard) for shard in _shards(table)]
    ways = {
        "into variables": np.concatenate([updates.applied(op_type, list(o), 1)[0] for o in own]),
        "into values": np.concatenate([_into_value(op_type, o) for o in own]),
        "shard after shard": _one_after_the_other(op_type, table, before, own),
    }
    for way, found in ways.items():
        if found.tobytes() != whole.tobytes():
            where = f"{op_type} {way} of {list(table.shape)} cut as {table.layout}"
            return f"{where} {_unlike(found, whole)}"
    return None


def _shards(table: Table) -> range:
    return range(table.layout.num_shards)


def _of_shard(
    table: Table, operands: tuple[np.ndarray, np.ndarray, np.ndarray], shard: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A shard's rows, the numbers of those that its entries name, and its entries."""
    before, rows, held = operands
    return (
        table.own(before, RowPlacement(What.TABLE, shape=table.shape), shard),
        table.own(rows, RowPlacement(What.ROWS, ALL), shard),
        table.own(held, RowPlacement(What.ENTRIES, ALL, shape=table.shape[1:]), shard),
    )


def _into_value(op_type: str, own: Sequence[np.ndarray]) -> np.ndarray:
    before, rows, held = own
    on_values = WRITES[op_type].on_values
    assert on_values is not None, f"{op_type} is no scatter"
    return run_op(on_values, [before, rows[:, None], held], {})[0]


def _one_after_the_other(
    op_type: str, table: Table, before: np.ndarray, own: Sequence[Sequence[np.ndarray]]
) -> np.ndarray:
    starts = [table.layout.rows(shard)[0] for shard in _shards(table)]
    rows = np.concatenate([o[1] + np.int32(s) for o, s in zip(own, starts, strict=True)])
    held = np.concatenate([o[2] for o in own])
    return updates.applied(op_type, [before, rows, held], 1)[0]


def _applied(op_type: str, random: np.random.Generator, table: Table) -> str | None:
    fused, rows = WRITES[op_type], table.entries[ONCE].astype(np.int32)
    assert fused.rows is not None, f"{op_type} writes no rows"
    operands = updates.operands(op_type, random, table.shape)
    operands[fused.operand] = values(random, (len(rows), *table.shape[1:]))
    operands[fused.rows] = rows
    before = operands[: fused.num_handles]
    whole = updates.applied(op_type, operands, fused.num_handles)
    found = [v.copy() for v in before]
    for shard in _shards(table):
        start, stop = table.layout.rows(shard)
        own = table.own(rows, RowPlacement(What.ROWS, ONCE), shard)
        entries = RowPlacement(What.ENTRIES, ONCE, shape=table.shape[1:])
        given = [v[start:stop][own] for v in before] + operands[fused.num_handles :]
        given[fused.operand] = table.own(operands[fused.operand], entries, shard)
        given[fused.rows] = np.arange(len(own), dtype=np.int32)
        for variable, new in zip(
            found, updates.applied(op_type, given, fused.num_handles), strict=True
        ):
            variable[start + own] = new
    where = f"of {op_type} of {list(table.shape)} cut as {table.layout}"
    for number, (expected, new, old) in enumerate(zip(whole, found, before, strict=True)):
        if expected.tobytes() == old.tobytes() or not np.isfinite(expected).all():
            return f"variable {number} {where} proves nothing; its sample values are bad"
        if new.tobytes() != expected.tobytes():
            return f"variable {number} {where} {_unlike(new, expected)}"
    return None


def _unlike(found: np.ndarray, expected: np.ndarray) -> str:
    ((place, *_), *_) = np.nonzero((found != expected).reshape(-1))
    return f"becomes {found.reshape(-1)[place]} in shards, {expected.reshape(-1)[place]} whole"
