"""The proof of rules for rows of a table and for entries that name them.

An op is run on the whole table with all entries, and on each shard with the entries that name its
rows. What its rule says of each result says what each shard has to have of it, to the last bit; of
a sum, the shards' parts have to add up to it, as the rewrite emits them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.elementwise import ON_VECTORS
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.sparse import READ_ROWS, SEGMENT_SUM
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.weight_update.analysis.row_placement import RowPlacement, What
from tf_wu_shard.weight_update.analysis.row_rules import Propagated, RowRules
from tf_wu_shard.weight_update.analysis.types import BodyOp, ShardSum
from tools.rule_proof import sums
from tools.rule_proof.row_samples import RowCall, row_calls
from tools.rule_proof.samples import called
from tools.rule_proof.tables import Table


def disagreements(op_type: str, random: np.random.Generator) -> Iterator[str | Refusal | None]:
    """For each call of an op on a table or on entries, how the shards differ from the whole."""
    for call in row_calls(op_type, random):
        yield disagreement(call)


def disagreement(call: RowCall) -> str | Refusal | None:
    """How the shards of a call differ from the whole; None where they agree."""
    propagated = _propagated(call)
    if isinstance(propagated, Refusal):
        return propagated
    op_type, operands, layout = call.call.op_type, call.call.operands, call.table.layout
    lying = [p.what.name for p in call.placements if p is not None]
    where = f"{op_type} of {[list(o.shape) for o in operands]} as {lying} cut as {layout}"
    whole = _run(call, list(operands))
    shards = range(layout.num_shards)
    try:
        if propagated.sum is not None:
            found = _added_up(call, propagated.sum)
            return None if _same(found, whole[0]) else f"{where} {_unlike(found, whole[0])}"
        own = [_run(call, _own_operands(call, propagated, shard)) for shard in shards]
    except tf.errors.OpError as error:
        return f"{where} fails in shards: {error.message}"
    table = _with_new_lists(call, propagated, whole)
    for number, (placement, result) in enumerate(zip(propagated.results, whole, strict=True)):
        if not _fits(placement, result):
            return f"{where} is placed {placement}, its result has shape {list(result.shape)}"
        for shard in shards:
            expected, found = table.own(result, placement, shard), own[shard][number]
            if not _same(found, expected):
                return f"{where}: shard {shard} {_unlike(found, expected)}"
    return None


def _propagated(call: RowCall) -> Propagated | Refusal:
    """What the rule says, of a graph with this op in it."""
    with tf.Graph().as_default() as graph:
        given = [
            tf.constant(o) if p is None else tf.compat.v1.placeholder(o.dtype, _static(o, p))
            for o, p in zip(call.call.operands, call.placements, strict=True)
        ]
        if call.call.op_type == READ_ROWS:
            given[0] = tf.compat.v1.placeholder(tf.resource, ())
        op = called(call.call.op_type, given, dict(call.call.attributes))[0].op
    view = GraphView(
        graph.as_graph_def(),
        variables={},
        outputs=(),
        control_outputs=(),
        op_def=function_graph.op_def,
        shape_of=lambda value: function_graph.static_shape(graph, value.op, value.index),
    )
    names = [tensor.op.name for tensor in given]
    placements = {Value(n): p for n, p in zip(names, call.placements, strict=True) if p is not None}
    rules = RowRules(view, call.table.shape, placements)
    if call.call.op_type == READ_ROWS:
        return rules.read_rows(view.ops[op.name], call.placements[1])
    return rules.propagate(view.ops[op.name], call.placements)


def _static(array: np.ndarray, placement: RowPlacement) -> tuple[int | None, ...]:
    """The shape that is known when the step is traced: not how many entries there are."""
    by_entry = placement.what in (What.ENTRIES, What.ROWS, What.PLACES)
    return (None, *array.shape[1:]) if by_entry else array.shape


def _own_operands(call: RowCall, propagated: Propagated, shard: int) -> list[np.ndarray]:
    """The operands as the rewrite gives them to a shard."""
    op_type, table = call.call.op_type, call.table
    start, stop = table.layout.rows(shard)
    own = [
        operand if placement is None else table.own(operand, placement, shard)
        for operand, placement in zip(call.call.operands, call.placements, strict=True)
    ]
    for number in propagated.sliced:
        own[number] = own[number][start:stop]
    if op_type == SEGMENT_SUM and propagated.results[0].what is What.TABLE:
        own[2] = np.array(stop - start, own[2].dtype)
    if family_of(op_type) is Family.RELABEL:
        shape = np.array((stop - start, *propagated.results[0].shape[1:]), np.int64)
        return [own[0], shape]
    return own


def _run(call: RowCall, operands: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    op_type, given = call.call.op_type, list(operands)
    if op_type == READ_ROWS:
        variable = tf.Variable(operands[0])
        given[0] = variable.handle
    if family_of(op_type) is Family.RELABEL and operands[0] is not call.call.operands[0]:
        return (np.reshape(operands[0], operands[1]),)
    return call.call.run(given, ON_VECTORS.get(op_type, ""))


def _added_up(call: RowCall, summed: ShardSum) -> np.ndarray:
    (placement, *_), operands = call.placements, call.call.operands
    assert placement is not None, "what is summed depends on the shard"
    shards = range(call.table.layout.num_shards)
    own = [call.table.own(operands[0], placement, shard) for shard in shards]
    op = BodyOp(call.call.op_type, ("sum",), (), sum=summed)
    return sums.emitted(op, own, call.table.layout)


def _with_new_lists(call: RowCall, propagated: Propagated, whole: tuple[np.ndarray, ...]) -> Table:
    """The table with the lists of entries that the call makes."""
    table = call.table
    for placement, result in zip(propagated.results, whole, strict=True):
        if placement.what is What.ROWS and placement.entries not in table.entries:
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
