"""The order in which TensorFlow's graph optimizer, Grappler, adds and multiplies.

It takes chains of additions, and of multiplications, apart and puts them together in another order
(MinimizeBroadcasts and AddOpsRewrite in arithmetic_optimizer.cc), which rounds otherwise. That
order follows from the names of the operands, by which it sorts those of a commutative op before
(canonicalizer.h). So the shards round as the unsharded step does where what enters a chain has a
name that sorts as that of what entered the old one. Ops of the body take their old names; a shard
of a gradient comes out of an op that has those of a whole bucket, and gets one here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.weight_update.analysis.types import BodyOp, OperandKind

_CHAINS = (frozenset(("Add", "AddV2")), frozenset(("Mul",)))


def gradients_in_chains(body: Sequence[BodyOp]) -> frozenset[int]:
    """The gradients, by key, that enter a sum of sums, a product of products, or a part of one.

    Args:
        body: The ops of an update.
    """
    members: set[int] = set()
    for position, op in enumerate(body):
        for chained in (types for types in _CHAINS if op.type in types):
            operands = {o.index for o in op.operands if o.kind is OperandKind.BODY}
            inner = {index for index in operands if body[index].type in chained}
            members |= inner | ({position} if inner else set())
    entering = (operand for member in members for operand in body[member].operands)
    return frozenset(o.index for o in entering if o.kind is OperandKind.GRADIENT)


def named_like(
    view: GraphView,
    old: Op,
    local: Value,
    shape: Sequence[int],
    at: Callable[[str], Emitter],
) -> Value:
    """A shard by names that sort like those by which Grappler knew the whole.

    A Reshape that changes no shape it takes out after it has sorted once, and sorts again by what
    comes before. Any other op stays; an EnsureShape does so, too.

    Args:
        view: The old graph.
        old: The op that computes the whole.
        local: The shard.
        shape: Its shape; it is a vector.
        at: Where to emit what stands for an old op, by its name.
    """
    kept = old
    while _changes_no_shape(view, kept):
        kept = view.source(kept.inputs[0])
    named = at(kept.name).op("EnsureShape", [local], "gradient", shape=shape)
    return named if kept is old else at(old.name).reshape(named, (-1,), "gradient")


def _changes_no_shape(view: GraphView, op: Op) -> bool:
    return op.type == "Reshape" and view.shape(Value(op.name)) == view.shape(op.inputs[0])
