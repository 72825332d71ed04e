"""Sums over elements of several shards: every replica's part, and what is made of their total.

All parts that may travel at once do: there is one all-reduce for each turn (see `schedule`), for
each step of the way in it from the gradients through one sum to the next, each element type, and
each kind of sum: maxima are sums of a kind (see `rules.sums`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tf_wu_shard.dtypes import BOOL, FLOAT32, item_bytes
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.placement import Combine, Partial
from tf_wu_shard.rules.sums import SUMS, kept_shape
from tf_wu_shard.weight_update.analysis.exchanges import exchanges, steps_behind
from tf_wu_shard.weight_update.analysis.types import BodyOp, WeightUpdate
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.own_shard import OwnShard
from tf_wu_shard.weight_update.rewrite.schedule import CollectiveSchedule


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


def wire_dtype(summed: Partial) -> int:
    """What parts of a sum travel in: 16 bits would round every part, and truths are numbers there.

    All parts but truth values are computed in it as well.
    """
    return summed.dtype if item_bytes(summed.dtype) >= item_bytes(FLOAT32) else FLOAT32


def part(own: OwnShard, op: BodyOp, shard: Value) -> Value:
    """What a replica's shard adds to a sum, in `wire_dtype`."""
    summed = op.sum
    assert summed is not None, f"{op.type} is no sum"
    rule, wire, at = SUMS[op.type], wire_dtype(summed), own.at
    shard = at.cast(shard, BOOL if summed.dtype == BOOL else wire, "cast")
    if rule.squares:
        shard = at.op("Square", [shard], "Square")
    added = own.contribution(shard, summed.of, summed.axes, summed.combine)
    return at.cast(added, wire, "cast")


def add_up(
    emission: Emission,
    updates: Sequence[WeightUpdate],
    parts: Sequence[Parts],
    schedule: CollectiveSchedule,
) -> tuple[dict[Value, Value], int]:
    """Adds up the parts of all sums.

    Args:
        emission: Where to emit.
        updates: All updates that were found in the old graph.
        parts: The parts of every sum.
        schedule: When exchanges come.

    Returns:
        For each old sum, what takes its place, and the number of all-reduces.
    """
    points = exchanges(updates)
    steps = dict(zip(points, steps_behind(emission.view, points), strict=True))
    together: dict[tuple[int, int, int, str], list[Parts]] = {}
    for own in parts:
        assert own.op.sum is not None, f"{own.op.type} is no sum"
        kind = (wire_dtype(own.op.sum), own.op.sum.combine.name)
        # The copies of one may stand behind different numbers of others only by their controls.
        turn = schedule.after(own.op.ops)
        together.setdefault((turn, steps[own.op.ops[:1]], *kind), []).append(own)
    found: dict[Value, Value] = {}
    in_turn = sorted(together.items(), key=lambda item: item[0])
    for number, ((*_, combine), members) in enumerate(in_turn):
        at = emission.at("", f"sums_{number}", "all_reduce")
        sums = [m.op.sum for m in members if m.op.sum is not None]
        shapes = [kept_shape(s.of, s.axes) for s in sums]
        operands = [m.values for m in members]
        totals = emission.dialect.all_reduce(at, operands, shapes, Combine[combine])
        for own, values in zip(members, totals, strict=True):
            found.update(_results(emission, own, values))
    return found, len(together)


def _results(emission: Emission, own: Parts, totals: Sequence[Value]) -> Mapping[Value, Value]:
    """What is made of a total where the first replica that has it computes."""
    made: dict[Value, Value] = {}
    for total, device in zip(totals, own.devices, strict=True):
        if total not in made:
            at = emission.at(device, own.variable, f"update/{own.op.type}")
            made[total] = result(at, own.op, total)
    pairs = [*zip(own.op.ops, totals, strict=True)]
    # What replica 0 sums for all stays with it.
    return {Value(op): made[total] for op, total in reversed(pairs)}


def result(at: Emitter, op: BodyOp, total: Value) -> Value:
    """A reduction's result, of its own shape and type, out of the sum that it is made of.

    Args:
        at: Where to emit.
        op: The reduction.
        total: The sum of every replica's part, in `wire_dtype`.
    """
    summed, rule = op.sum, SUMS[op.type]
    assert summed is not None, f"{op.type} is no sum"
    count = math.prod(summed.of[axis] for axis in summed.axes)
    divisor = count if rule.mean else 2 if rule.half else 1
    if divisor != 1:
        # A plain division by a constant is made a multiplication when the graph is optimized.
        by = at.constant(divisor, at.dtype(total))
        total = at.op("DivNoNan", [total, by], "divided")
    if rule.root:
        total = at.op("Sqrt", [total], "Sqrt")
    return at.reshape(at.cast(total, summed.dtype, "cast"), summed.shape, "sum")
