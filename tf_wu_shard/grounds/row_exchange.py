"""Which entries of a sparse gradient name a replica's rows of a table, and how rows are numbered.

Every entry names a row; the rows are cut into runs, one for each replica.
"""

from __future__ import annotations

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import RowLayout


def own_entries(at: Emitter, rows: Value, layout: RowLayout, shard: int) -> tuple[Value, Value]:
    """The entries that name a shard's rows, in their order.

    Row numbers that the table does not have belong to the first or the last shard, so that an op
    that refuses them does so there as it would on the whole table.

    Args:
        at: Where to emit.
        rows: The number of each entry's row.
        layout: How the table is cut.
        shard: Whose rows.

    Returns:
        The places of these entries in the list, int64, and their row numbers within the shard.
    """
    first, behind = layout.rows(shard)
    dtype = at.dtype(rows)
    tests = []
    if shard > 0:
        tests.append(at.op("GreaterEqual", [rows, at.constant(first, dtype)], "not_before"))
    if shard < layout.num_shards - 1:
        tests.append(at.op("Less", [rows, at.constant(behind, dtype)], "not_behind"))
    own = tests[0] if len(tests) == 1 else at.op("LogicalAnd", tests, "own")
    places = at.flat(at.op("Where", [own], "where"), "places")
    numbers = picked(at, rows, places, "rows")
    return places, at.op("Sub", [numbers, at.constant(first, dtype)], "rows_of_shard")


def picked(at: Emitter, table: Value, rows: Value, name: str) -> Value:
    """The rows of a tensor that are named, in the order in which they are."""
    return at.op("GatherV2", [table, rows, at.constant(0)], name)


def rows_of_table(at: Emitter, rows: Value, layout: RowLayout, shard: int) -> Value:
    """Rows that are named within a shard, numbered in the whole table.

    Args:
        at: Where to emit.
        rows: Row numbers within the shard.
        layout: How the table is cut.
        shard: Which.
    """
    start = at.constant(layout.rows(shard)[0], at.dtype(rows))
    return at.op("AddV2", [rows, start], "rows_of_table")
