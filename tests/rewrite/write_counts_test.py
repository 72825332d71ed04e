"""Every kind of write counts, once for each variable that it writes."""

from __future__ import annotations

from tf_wu_shard.analysis.types import BodyOp, Operand, OperandKind, WeightUpdate
from tf_wu_shard.rewrite.write_counts import writes_by_variable


def op(op_type: str, *handles: str) -> BodyOp:
    operands = tuple(Operand(OperandKind.HANDLE, variable=key) for key in handles)
    return BodyOp(op_type, ("op",), operands, handles[0])


def test_each_write_counts_and_no_read_does() -> None:
    body = (
        *(op("ReadVariableOp", "m"), op("AssignAddVariableOp", "m"), op("AssignVariableOp", "w")),
        *(op("ResourceApplyMomentum", "w", "m"), op("ResourceScatterAdd", "w")),
    )
    update = WeightUpdate((), (), body, ("",))
    assert writes_by_variable(update) == {"m": 2, "w": 3}
