"""Checks what was found before anything is planned with it.

An update that fails is a mistake of the analysis, not of the user's step: the error says which
promise was broken, and the graph stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rules.writes import num_written
from tf_wu_shard.weight_update.analysis.types import Operand, OperandKind, WeightUpdate


def verify_updates(view: GraphView, updates: Iterable[WeightUpdate]) -> None:
    """Checks what the analysis promises of each update.

    - Every op of its body, every value that enters it and every handle is one of the graph's.
    - Every operand is what an earlier op yields, one of the update's gradients, the handle of one
      of its variables, or a value from outside.
    - Every variable that it writes is its own.

    Args:
        view: The graph.
        updates: The updates that were found in it.

    Raises:
        WuShardError: If a promise is broken.
    """
    for update in updates:
        _check_names(view, update)
        _check_operands(update)
        _check_writes(update)


def _check_names(view: GraphView, update: WeightUpdate) -> None:
    names = {name for op in update.body for name in op.ops}
    names.update(v.op for op in update.body for o in op.operands for v in o.values)
    names.update(handle for variable in update.variables for handle in variable.handles)
    if missing := names.difference(view.ops):
        raise WuShardError(f"the update of {update.name} has {min(missing)}, which no op is called")


def _check_operands(update: WeightUpdate) -> None:
    keys = {variable.key for variable in update.variables}
    gradients = set(update.reductions)
    for position, op in enumerate(update.body):
        for operand in op.operands:
            if not _is_known(operand, position, gradients, keys):
                raise WuShardError(
                    f"the update of {update.name} has {op.type} {op.ops[0]}, and among its operands"
                    f" {operand}, which nothing before it is"
                )


def _is_known(operand: Operand, position: int, gradients: set[int], keys: set[str]) -> bool:
    if operand.kind is OperandKind.BODY:
        return 0 <= operand.index < position
    if operand.kind is OperandKind.GRADIENT:
        return operand.index in gradients
    if operand.kind is OperandKind.HANDLE:
        return operand.variable in keys
    return bool(operand.values)


def _check_writes(update: WeightUpdate) -> None:
    keys = {variable.key for variable in update.variables}
    for op in update.body:
        count = num_written(op.type)
        written = {operand.variable for operand in op.operands[:count]}
        if op.variable:
            written.add(op.variable)
        if (count and not written) or not written <= keys:
            raise WuShardError(
                f"the update of {update.name} has {op.type} {op.ops[0]} write"
                f" {', '.join(sorted(written - keys)) or 'nothing'}, which is no variable of it"
            )
