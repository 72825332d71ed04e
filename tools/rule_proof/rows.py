"""The proof of rules for rows of a table and for entries that name them.

An op is run on the whole table with all entries, and on each shard with the entries that name its
rows. What its rule says of each result says what each shard has to have of it, to the last bit; of
a sum, the shards' parts have to add up to it, as the rewrite emits them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.placement import Cut, Partial, Placement, Replicated, RowPlacement, What
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.elementwise import own_rows
from tf_wu_shard.rules.operation import LocalOp
from tf_wu_shard.rules.registry import Family, family_of, localize, propagate
from tf_wu_shard.rules.sparse import READ_ROWS
from tf_wu_shard.weight_update.analysis.types import BodyOp
from tools.rule_proof import sums
from tools.rule_proof.row_samples import RowCall, row_calls
from tools.rule_proof.tables import Table


def disagreements(op_type: str, random: np.random.Generator) -> Iterator[str | Refusal | None]:
    """For each call of an op on a table or on entries, how the shards differ from the whole."""
    for call in row_calls(op_type, random):
        yield disagreement(call)


def disagreement(call: RowCall) -> str | Refusal | None:
    """How the shards of a call differ from the whole; None where they agree."""
    op_type, operands, layout = call.call.op_type, call.call.operands, call.table.layout
    whole = _run(call, None, operands, 0)
    operation, placed = call.call.operation(whole[0]), _lying(call)
    results = propagate(operation, placed, Cut.ROWS)
    if isinstance(results, Refusal):
        return results
    what = [p.what.name for p in call.placements if p is not None]
    where = f"{op_type} of {[list(o.shape) for o in operands]} as {what} cut as {layout}"
    shards = range(layout.num_shards)
    try:
        if isinstance(results[0], Partial):
            found = _added_up(call, results[0])
            return None if _same(found, whole[0]) else f"{where} {_unlike(found, whole[0])}"
        local, elementwise = localize(operation, placed), family_of(op_type) is Family.ELEMENTWISE
        sliced = own_rows(placed, results) if elementwise else ()
        own = [_run(call, local, _own_operands(call, sliced, shard), shard) for shard in shards]
    except tf.errors.OpError as error:
        return f"{where} fails in shards: {error.message}"
    table = _with_new_lists(call, results, whole)
    for number, (placement, result) in enumerate(zip(results, whole, strict=True)):
        if not isinstance(placement, RowPlacement) or not _fits(placement, result):
            return f"{where} is placed {placement}, its result has shape {list(result.shape)}"
        for shard in shards:
            expected, found = table.own(result, placement, shard), own[shard][number]
            if not _same(found, expected):
                return f"{where}: shard {shard} {_unlike(found, expected)}"
    return None


def _lying(call: RowCall) -> tuple[RowPlacement | Replicated, ...]:
    return tuple(
        Replicated(operand.shape) if placement is None else placement
        for operand, placement in zip(call.call.operands, call.placements, strict=True)
    )


def _own_operands(call: RowCall, sliced: Sequence[int], shard: int) -> list[np.ndarray]:
    """The operands as the rewrite gives them to a shard."""
    start, stop = call.table.layout.rows(shard)
    own = [
        operand if placement is None else call.table.own(operand, placement, shard)
        for operand, placement in zip(call.call.operands, call.placements, strict=True)
    ]
    for number in sliced:
        own[number] = own[number][start:stop]
    return own


def _run(
    call: RowCall, local: LocalOp | None, operands: Sequence[np.ndarray], shard: int
) -> tuple[np.ndarray, ...]:
    """Runs the op, or what a shard computes in its place."""
    given: list[Any] = list(operands)
    if call.call.op_type == READ_ROWS:
        variable = tf.Variable(operands[0])
        given[0] = variable.handle
    num_rows = 0
    if local is not None:
        start, stop = call.table.layout.rows(shard)
        num_rows = stop - start
    return call.call.run_local(local, given, num_rows)


def _added_up(call: RowCall, summed: Partial) -> np.ndarray:
    (placement, *_), operands = call.placements, call.call.operands
    assert placement is not None, "what is summed depends on the shard"
    shards = range(call.table.layout.num_shards)
    own = [call.table.own(operands[0], placement, shard) for shard in shards]
    return sums.emitted(BodyOp(call.call.op_type, ("sum",), (), sum=summed), own, call.table.layout)


def _with_new_lists(
    call: RowCall, results: Sequence[Placement], whole: tuple[np.ndarray, ...]
) -> Table:
    """The table with the lists of entries that the call makes."""
    table = call.table
    for placement, result in zip(results, whole, strict=True):
        if not isinstance(placement, RowPlacement) or placement.what is not What.ROWS:
            continue
        if placement.entries not in table.entries:
            table = table.with_list(placement.entries, result)
    return table


def _fits(placement: RowPlacement, result: np.ndarray) -> bool:
    if placement.what is What.TABLE:
        return placement.shape == result.shape
    return placement.what is not What.ENTRIES or placement.shape == result.shape[1:]


def _same(found: np.ndarray, expected: np.ndarray) -> bool:
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    # A NaN has to be one; its sign may follow from the place in a vector register.
    differs = found.view(f"V{found.itemsize}") != expected.view(f"V{found.itemsize}")
    return bool(np.all((found != found) & (expected != expected) | ~differs))


def _unlike(found: np.ndarray, expected: np.ndarray) -> str:
    ours, wanted = (f"{a.dtype} {a.reshape(-1)[:6]}" for a in (found, expected))
    return f"gives {ours} in shards, {wanted} whole"
