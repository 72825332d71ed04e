"""Sums over elements of several shards: every replica's part, and what is made of their total.

All parts that may travel at once do: there is one all-reduce for each turn (see `turns`), for each
step of the way in it from the gradients through one sum to the next, each element type, and each
kind of sum: maxima are sums of a kind (see `rules.sums`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tf_wu_shard.analysis.exchanges import exchanges, steps_behind
from tf_wu_shard.analysis.types import BodyOp, ShardSum, WeightUpdate
from tf_wu_shard.dialects import plain_ops
from tf_wu_shard.dialects.base import Dialect
from tf_wu_shard.dialects.shard_sums import contribution
from tf_wu_shard.dtypes import BOOL, FLOAT32, item_bytes
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.placement import Combine
from tf_wu_shard.rewrite.names import scope_of
from tf_wu_shard.rewrite.turns import Turns
from tf_wu_shard.rules.sums import SUMS, kept_shape

_INT32 = 3


@dataclasses.dataclass(frozen=True)
class Parts:
    """What every replica's shard adds to one sum.

    Attributes:
        variable: The variable whose update sums.
        op: The body op that sums.
        values: Per replica, its part.
        devices: Per replica, its device.
    """

    variable: str
    op: BodyOp
    values: tuple[Value, ...]
    devices: tuple[str, ...]


def parts_of(update: WeightUpdate, parts: Sequence[Mapping[str, Value]]) -> list[Parts]:
    """The parts of every sum of an update.

    Args:
        update: The update.
        parts: Per replica, for each sum by its old op, what the replica's shard adds to it.
    """
    return [
        Parts(
            update.name,
            op,
            tuple(own[name] for own, name in zip(parts, op.ops, strict=True)),
            update.devices,
        )
        for op in update.body
        if op.sum is not None
    ]


def wire_dtype(summed: ShardSum) -> int:
    """What parts of a sum travel in: 16 bits would round every part, and truths are numbers there.

    All parts but truth values are computed in it as well.
    """
    return summed.dtype if item_bytes(summed.dtype) >= item_bytes(FLOAT32) else FLOAT32


def part(
    builder: GraphBuilder,
    dialect: Dialect,
    op: BodyOp,
    shard: Value,
    layout: AnyLayout,
    replica: int,
    device: str,
    scope: str,
) -> Value:
    """What a replica's shard adds to a sum, in `wire_dtype`."""
    summed = op.sum
    assert summed is not None, f"{op.type} is no sum"
    rule, wire = SUMS[op.type], wire_dtype(summed)
    dtype = BOOL if summed.dtype == BOOL else wire
    shard = plain_ops.cast(builder, shard, summed.dtype, dtype, scope)
    if rule.squares:
        types = {"T": dtype}
        shard = builder.op("Square", [shard], name=f"{scope}/Square", device=device, types=types)
    own = contribution(
        *(builder, dialect, shard, layout, summed.shape, summed.axes, dtype, replica, device),
        scope=scope,
        combine=rule.combine,
    )
    return plain_ops.cast(builder, own, dtype, wire, scope)


def add_up(
    view: GraphView,
    updates: Sequence[WeightUpdate],
    builder: GraphBuilder,
    dialect: Dialect,
    parts: Sequence[Parts],
    turns: Turns,
) -> tuple[dict[Value, Value], int]:
    """Adds up the parts of all sums.

    Args:
        view: The old graph.
        updates: All updates that were found in it.
        builder: Where to emit.
        dialect: How to communicate.
        parts: The parts of every sum.
        turns: When exchanges come.

    Returns:
        For each old sum, what takes its place, and the number of all-reduces.
    """
    points = exchanges(updates)
    steps = dict(zip(points, steps_behind(view, points), strict=True))
    together: dict[tuple[int, int, int, str], list[Parts]] = {}
    for own in parts:
        assert own.op.sum is not None, f"{own.op.type} is no sum"
        kind = (wire_dtype(own.op.sum), SUMS[own.op.type].combine.name)
        # The copies of one may stand behind different numbers of others only by their controls.
        turn = turns.after(own.op.ops)
        together.setdefault((turn, steps[own.op.ops[:1]], *kind), []).append(own)
    found: dict[Value, Value] = {}
    in_turn = sorted(together.items(), key=lambda item: item[0])
    for number, ((_, _, dtype, combine), members) in enumerate(in_turn):
        scope = scope_of(f"sums_{number}", "all_reduce")
        sums = [m.op.sum for m in members if m.op.sum is not None]
        shapes = [kept_shape(s.shape, s.axes) for s in sums]
        operands = [m.values for m in members]
        totals = dialect.all_reduce(builder, operands, shapes, dtype, scope, Combine[combine])
        for own, values in zip(members, totals, strict=True):
            found.update(_results(builder, own, values, dtype))
    return found, len(together)


def _results(
    builder: GraphBuilder, own: Parts, totals: Sequence[Value], dtype: int
) -> Mapping[Value, Value]:
    """What is made of a total where the first replica that has it computes."""
    made: dict[Value, Value] = {}
    for total, device in zip(totals, own.devices, strict=True):
        if total not in made:
            scope = scope_of(own.variable, f"update/{own.op.type}")
            made[total] = result(builder, own.op, total, dtype, device, scope)
    pairs = [*zip(own.op.ops, totals, strict=True)]
    # What replica 0 sums for all stays with it.
    return {Value(op): made[total] for op, total in reversed(pairs)}


def result(
    builder: GraphBuilder, op: BodyOp, total: Value, dtype: int, device: str, scope: str
) -> Value:
    """A reduction's result, of its own shape and type, out of the sum that it is made of.

    Args:
        builder: Where to emit.
        op: The reduction.
        total: The sum of every replica's part.
        dtype: Its element type, `wire_dtype`.
        device: Where to compute.
        scope: Name scope of the emitted ops.
    """
    summed, rule = op.sum, SUMS[op.type]
    assert summed is not None, f"{op.type} is no sum"
    types = {"T": dtype}
    count = 1
    for axis in summed.axes:
        count *= summed.shape[axis]
    divisor = count if rule.mean else 2 if rule.half else 1
    if divisor != 1:
        by = builder.constant(divisor, device=device, dtype=dtype)
        name = f"{scope}/divided"
        # A plain division by a constant is made a multiplication when the graph is optimized.
        total = builder.op("DivNoNan", [total, by], name=name, device=device, types=types)
    if rule.root:
        total = builder.op("Sqrt", [total], name=f"{scope}/Sqrt", device=device, types=types)
    total = plain_ops.cast(builder, total, dtype, summed.dtype, scope)
    shape = builder.constant(list(summed.result_shape), device=device)
    types = {"T": summed.dtype, "Tshape": _INT32}
    return builder.op("Reshape", [total, shape], name=f"{scope}/sum", device=device, types=types)
