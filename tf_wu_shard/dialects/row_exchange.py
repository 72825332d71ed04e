"""Entries of a sparse gradient, and rows of a table, between replicas of one process.

Every entry names a row; the rows are cut into runs, one for each replica. Cross-device edges pass
references, so one list of all entries serves all replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_wu_shard.dialects import plain_ops
from tf_wu_shard.dialects.table_layout import TableLayout
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value

_BOOL = 10
_INT32 = 3
_INT64 = 9


def own_entries(
    builder: GraphBuilder,
    rows: Value,
    layout: TableLayout,
    dtype: int,
    replica: int,
    device: str,
    scope: str,
) -> tuple[Value, Value]:
    """The entries that name a replica's rows, in their order.

    Row numbers that the table does not have belong to the first or the last replica, so that an op
    that refuses them does so there as it would on the whole table.

    Args:
        builder: Where to emit.
        rows: The number of each entry's row.
        layout: How the table is cut.
        dtype: The element type of `rows`, as a DataType number.
        replica: Whose rows.
        device: Where to emit.
        scope: Name scope of the emitted ops.

    Returns:
        The places of these entries in the list, int64, and their row numbers within the shard.
    """
    first, behind = layout.rows(replica)
    types = {"T": dtype}
    tests = []
    if replica > 0:
        low = builder.constant(first, device=device, dtype=dtype)
        name = f"{scope}/not_before"
        tests.append(builder.op("GreaterEqual", [rows, low], name=name, device=device, types=types))
    if replica < layout.num_shards - 1:
        high = builder.constant(behind, device=device, dtype=dtype)
        name = f"{scope}/not_behind"
        tests.append(builder.op("Less", [rows, high], name=name, device=device, types=types))
    own = tests[0]
    if len(tests) == 2:
        own = builder.op("LogicalAnd", tests, name=f"{scope}/own", device=device)
    places = builder.op("Where", [own], name=f"{scope}/where", device=device, types={"T": _BOOL})
    places = plain_ops.flat(builder, places, _INT64, device, f"{scope}/places")
    numbers = picked(builder, rows, places, dtype, _INT64, device, f"{scope}/rows")
    start = builder.constant(first, device=device, dtype=dtype)
    name = f"{scope}/rows_of_shard"
    return places, builder.op("Sub", [numbers, start], name=name, device=device, types=types)


def picked(
    builder: GraphBuilder,
    table: Value,
    rows: Value,
    dtype: int,
    rows_dtype: int,
    device: str,
    name: str,
) -> Value:
    """The rows of a tensor that are named, in the order in which they are."""
    inputs = [table, rows, builder.constant(0, device=device)]
    types = {"Tparams": dtype, "Tindices": rows_dtype, "Taxis": _INT32}
    return builder.op("GatherV2", inputs, name=name, device=device, types=types)


def all_rows(
    builder: GraphBuilder,
    rows: Mapping[int, Value],
    layout: TableLayout,
    dtype: int,
    devices: Sequence[str],
    scope: str,
) -> Value:
    """The rows that replicas name within their shards, numbered in the whole table.

    Args:
        builder: Where to emit.
        rows: For some replicas, row numbers within their shards.
        layout: How the table is cut.
        dtype: Their element type, as a DataType number.
        devices: The devices of these replicas, in the same order.
        scope: Name scope of the emitted ops.

    Returns:
        Those of the first of these replicas, then those of the next, ...
    """
    numbered = []
    for (replica, own), device in zip(rows.items(), devices, strict=True):
        start = builder.constant(layout.rows(replica)[0], device=device, dtype=dtype)
        name = f"{scope}/rows_of_table"
        types = {"T": dtype}
        numbered.append(builder.op("AddV2", [own, start], name=name, device=device, types=types))
    return plain_ops.joined(builder, numbered, dtype, devices[0], f"{scope}/rows")


def joined_entries(
    builder: GraphBuilder,
    operands: Sequence[Value],
    order: Sequence[int],
    dtype: int,
    device: str,
    name: str,
) -> Value:
    """All replicas' entries of one part of a gradient, in the order in which they stand."""
    return plain_ops.joined(builder, [operands[r] for r in order], dtype, device, name)
