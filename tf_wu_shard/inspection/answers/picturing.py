"""Which update of a function is drawn, and how its ops become a picture's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard.dtypes import dtype_name, item_bytes
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.answers.answer import (
    PictureGradient,
    PictureOp,
    PictureTensor,
    UpdatePicture,
)
from tf_wu_shard.layout import OwnerLayout, RowLayout
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import is_fused_update, is_plain_write
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.types import BodyOp, OperandKind
from tf_wu_shard.weight_update.plan.types import ShardingPlan, VariablePlan

# Far more than any optimizer's update has; a picture of more shows nothing.
_MOST_OPS = 400


def picture_of(view: GraphView, plan: ShardingPlan) -> UpdatePicture | None:
    """The largest planned update as a picture.

    An update that replicas share element by element or row by row is preferred to one that its
    owner does alone. A table whose gradient names rows is not drawn: what its replicas exchange is
    not its shape.

    Args:
        view: The graph.
        plan: What is done to it.

    Returns:
        The picture, or None where no update that can be drawn is planned.
    """
    drawable = [
        planned
        for planned in plan.variables
        if not isinstance(planned.layout, RowLayout)
        and len(planned.update.body) <= _MOST_OPS
        and not any(reduction.gathered for reduction in planned.reductions)
    ]
    if not drawable:
        return None
    chosen = max(
        drawable, key=lambda v: (not isinstance(v.layout, OwnerLayout), math.prod(v.layout.shape))
    )
    return _Picturing(view, chosen).picture(plan.num_replicas)


class _Picturing:
    def __init__(self, view: GraphView, planned: VariablePlan) -> None:
        self._view = view
        self._planned = planned
        self._update = planned.update
        self._layout = planned.layout
        self._holder = planned.layout.owner if isinstance(planned.layout, OwnerLayout) else 0
        self._shapes = {v.key: (v.shape, v.dtype) for v in self._update.variables}

    def picture(self, replicas: int) -> UpdatePicture:
        """The update, drawn."""
        update, planned = self._update, self._planned
        weight = update.variables[0]
        whole = _tensor(weight.shape, weight.dtype)
        in_shards = bool(planned.sharded_weights)
        gathered = planned.gather_dtype if in_shards else weight.dtype
        return UpdatePicture(
            variable=planned.variable,
            replicas=replicas,
            layout=str(planned.layout),
            owned=isinstance(planned.layout, OwnerLayout),
            gradients=tuple(map(self._gradient, planned.reductions)),
            ops=self._ops(),
            weight=whole,
            weight_shard=self._cut(whole, weight.dtype),
            gathered=_tensor(weight.shape, gathered),
            in_shards=tuple(kept.variable for kept in planned.in_shards),
            weight_in_shards=in_shards,
        )

    def _gradient(self, reduction: GradientReduction) -> PictureGradient:
        shape = self._view.shape(reduction.operands[0])
        if shape is None or math.prod(shape) != reduction.size:
            shape = (reduction.size or 0,)
        whole = _tensor(shape, reduction.dtype)
        op, sum_op = reduction.operands[0].op, reduction.carriers[0]
        cut = self._cut(whole, reduction.dtype)
        return PictureGradient(op, "" if sum_op == op else sum_op, whole, cut)

    def _cut(self, whole: PictureTensor, dtype: int) -> PictureTensor:
        """A replica's part of a value: all of it where it is not of the variable's size."""
        if math.prod(whole.shape) != math.prod(self._layout.shape):
            return whole
        return _tensor(self._layout.shard_shape(self._holder), dtype)

    def _ops(self) -> tuple[PictureOp, ...]:
        body = self._update.body
        order, part, target = _by_write(body)
        place = {position: number for number, position in enumerate(order)}
        gradients = {r.key: number for number, r in enumerate(self._planned.reductions)}
        found, last_write = [], dict[str, int]()
        written_before: list[int | None] = []
        for position, op in enumerate(body):
            written_before.append(None if _writes(op) else last_write.get(op.variable))
            if _writes(op):
                last_write[op.variable] = position
        for position in order:
            op = body[position]
            operands = op.operands
            reads = (place[o.index] for o in operands if o.kind is OperandKind.BODY)
            enter = (o.index for o in operands if o.kind is OperandKind.GRADIENT)
            follows = written_before[position]
            whole = self._result(op)
            found.append(
                PictureOp(
                    name=op.ops[0],
                    type=op.type,
                    reads=tuple(dict.fromkeys(reads)),
                    gradients=tuple(dict.fromkeys(gradients[k] for k in enter if k in gradients)),
                    follows=None if follows is None else place[follows],
                    part=part[position],
                    writes_for=target[position],
                    variable=op.variable,
                    writes=_writes(op),
                    whole=None if whole is None else _tensor(*whole),
                    shard=None if whole is None else self._shard(op, *whole),
                    summed=op.sum is not None,
                )
            )
        return tuple(found)

    def _result(self, op: BodyOp) -> tuple[tuple[int, ...], int] | None:
        """The shape and element type of what an op yields or writes."""
        if op.variable and (op.type == READ or _writes(op)):
            return self._shapes.get(op.variable)
        if op.sum is not None:
            return op.sum.shape, op.sum.dtype
        value = Value(op.ops[0])
        shape = self._view.shape(value)
        try:
            dtype = self._view.dtype(value)
            item_bytes(dtype)
        except (WuShardError, IndexError):
            return None
        return None if shape is None else (shape, dtype)

    def _shard(self, op: BodyOp, shape: tuple[int, ...], dtype: int) -> PictureTensor:
        whole = _tensor(shape, dtype)
        return whole if op.sum or op.function is not None else self._cut(whole, dtype)


def _tensor(shape: tuple[int, ...], dtype: int) -> PictureTensor:
    return PictureTensor(shape, dtype_name(dtype), math.prod(shape) * item_bytes(dtype))


def _writes(op: BodyOp) -> bool:
    return is_plain_write(op.type) or is_fused_update(op.type)


def _by_write(body: Sequence[BodyOp]) -> tuple[list[int], list[int], list[str]]:
    """The ops' positions, those for one write together; which write each is for, and of what.

    An op belongs to the first write that needs it. All that it needs then belongs to the same or
    an earlier one, as a write comes after what it needs, so each stays after what it reads.
    """
    owner: dict[int, int] = {}
    writes = [position for position, op in enumerate(body) if _writes(op)]

    def needed(position: int) -> list[int]:
        operands = (o for o in body[position].operands if o.kind is OperandKind.BODY)
        return [o.index for o in operands if o.index not in owner]

    for number, write in enumerate(writes):
        owner |= dict.fromkeys([p for p in reachable([write], needed) if p not in owner], number)
    part = [owner.get(position, len(writes)) for position in range(len(body))]
    order = sorted(range(len(body)), key=lambda position: (part[position], position))
    target = [body[writes[p]].variable if p < len(writes) else "" for p in part]
    return order, part, target
