"""The proof of sums over shards: what the rewrite emits for every replica adds up to the whole sum.

Values are small whole numbers, of which every sum is exact whatever its order, or truth values, so
that the results must agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds import plain_ops
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import one_group
from tf_wu_shard.layout import AnyLayout, row_layout
from tf_wu_shard.placement import Combine, Partial, Placement, Replicated, Sharded
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.registry import propagate
from tf_wu_shard.rules.sums import SUMS
from tf_wu_shard.weight_update.analysis.types import BodyOp
from tf_wu_shard.weight_update.rewrite import sums as emission
from tf_wu_shard.weight_update.rewrite.own_shard import OwnShard
from tools.rule_proof.samples import Call, definition, run_op, shapes
from tools.rule_proof.shards import cut, layouts

# The element types by the op's type attribute, which ops on truth values do not have.
_DTYPES: dict[tuple[str, Combine], tuple[Any, ...]] = {
    ("T", Combine.SUM): (np.float32, np.float64),
    ("T", Combine.MAX): (np.float32, np.int32),
    ("T", Combine.MIN): (np.float32, np.int32),
    ("", Combine.MAX): (np.bool_,),
    ("", Combine.MIN): (np.bool_,),
}


def disagreements(op_type: str, random: np.random.Generator) -> Iterator[str | Refusal | None]:
    """For each sum over some axes of a tensor, under each of some layouts, what is wrong."""
    dtypes = _DTYPES[definition(op_type).input_arg[0].type_attr, SUMS[op_type].combine]
    for shape in shapes(random):
        dtype = dtypes[int(random.integers(len(dtypes)))]
        values = np.asarray(random.integers(-4, 10, shape), dtype)
        if dtype is np.bool_:
            # Often none decides, so that one in the padding would.
            deciding = random.random(shape) < random.choice([0, 0, 0.02, 0.5])
            values = np.asarray(deciding == (SUMS[op_type].combine is Combine.MAX))
        for layout in layouts(random, shape, values.itemsize):
            axes = _axes(op_type, random, len(shape))
            yield disagreement(op_type, values, axes, layout, keep=bool(random.integers(2)))
        if shape:
            # Of whole rows, those of several shards are summed only over the first axis.
            table = row_layout(shape, int(random.integers(2, 6)), values.itemsize)
            axes = tuple(sorted({0, *_axes(op_type, random, len(shape))}))
            yield disagreement(op_type, values, axes, table, keep=bool(random.integers(2)))


def disagreement(
    op_type: str, values: np.ndarray, axes: tuple[int, ...], layout: AnyLayout, *, keep: bool
) -> str | Refusal | None:
    """How a sum over shards differs from the sum of the whole; None where they agree."""
    operands: list[np.ndarray] = [values]
    attributes: dict[str, Any] = {}
    if len(definition(op_type).input_arg) > 1:
        operands.append(np.array(axes, np.int32))
        attributes["keep_dims"] = keep
    (whole,) = run_op(op_type, operands, attributes)
    cut_of = (True, *(False for _ in operands[1:]))
    call = Call(op_type, tuple(operands), cut_of, tuple(attributes.items()))
    placements: list[Placement] = [Sharded(values.shape)]
    placements += [Replicated(operand.shape) for operand in operands[1:]]
    outcome = propagate(call.operation(whole), tuple(placements))
    if isinstance(outcome, Refusal):
        return outcome
    where = f"{op_type} of {list(values.shape)} over {list(axes)} cut as {layout}"
    dtype = tf.as_dtype(values.dtype).as_datatype_enum
    summed = Partial(whole.shape, SUMS[op_type].combine, values.shape, axes, dtype)
    if outcome != (summed,):
        return f"{where} is placed {outcome}"
    padding = _padding(values.dtype, SUMS[op_type].combine)
    shards = [cut(values, layout, replica, padding) for replica in range(layout.num_shards)]
    found = emitted(BodyOp(op_type, ("sum",), (), sum=summed), shards, layout)
    if found.shape != whole.shape or found.tobytes() != whole.tobytes():
        return f"{where} gives {found.reshape(-1)[:6]} in shards, {whole.reshape(-1)[:6]} whole"
    return None


def _axes(op_type: str, random: np.random.Generator, rank: int) -> tuple[int, ...]:
    if len(definition(op_type).input_arg) == 1 or not rank:
        return tuple(range(rank))
    count = int(random.integers(1, rank + 1))
    return tuple(sorted(int(a) for a in random.choice(rank, count, replace=False)))


def emitted(op: BodyOp, shards: Sequence[np.ndarray], layout: AnyLayout) -> np.ndarray:
    """Runs what is emitted for every replica, and adds up the parts.

    Args:
        op: The sum.
        shards: What each replica has of what is summed.
        layout: How that is cut.
    """
    builder = GraphBuilder(())
    dialect = TpuCluster("proof", one_group(layout.num_shards))
    combine = SUMS[op.type].combine
    parts = []
    for replica, own in enumerate(shards):
        # A constant serves one replica only: what it tells of its number differs.
        shard = _const(builder, own, f"shard_{replica}")
        before = len(builder.nodes)
        at = builder.at("", f"replica_{replica}")
        parts.append(emission.part(OwnShard(at, dialect, layout, replica), op, shard))
        _number(builder.nodes[before:], replica)
    total = plain_ops.combined(builder.at("", ""), parts, combine, "total")
    found = emission.result(builder.at("", "result"), op, total)
    graph_def = tf.compat.v1.GraphDef(node=builder.nodes)
    program = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(graph_def, name=""), []
    ).prune([], f"{found.op}:{found.index}")
    return np.asarray(program().numpy())


def _padding(dtype: np.dtype, combine: Combine) -> object:
    """What padding would be noticed by."""
    if dtype.kind == "f":
        return np.nan
    largest = combine is Combine.MAX
    return largest if dtype.kind == "b" else 99 if largest else -99


def _const(builder: GraphBuilder, array: np.ndarray, name: str) -> Value:
    node = tf.compat.v1.NodeDef(name=builder.unique(name), op="Const")
    node.attr["dtype"].type = tf.as_dtype(array.dtype).as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array))
    return builder.add(node)


def _number(nodes: Sequence[tf.compat.v1.NodeDef], replica: int) -> None:
    """Turns what asks for the replica's number, which only a TPU program knows, into the number."""
    for node in nodes:
        if node.op == "XlaReplicaId":
            node.op = "Const"
            node.attr["dtype"].type = tf.int32.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(replica))
