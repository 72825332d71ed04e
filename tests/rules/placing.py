"""Asks where the result of an op lies, whose operands lie somewhere."""

from __future__ import annotations

from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.graph.op import Value
from tf_wu_shard.placement import Placement, Replicated, Sharded
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.operation import Operation
from tf_wu_shard.rules.registry import propagate

CUT, WHOLE, SCALAR = Sharded((4, 3)), Replicated((4, 3)), Replicated(())


def placed(
    op_type: str,
    *operands: Placement | None,
    shape: tuple[int, ...] | None = (4, 3),
    dtype: int = FLOAT32,
    **constants: int,
) -> object:
    inputs = tuple(Value(f"operand_{number}") for number in range(len(operands)))
    known = {1: (constants["axis"],)} if constants else {}
    outcome = propagate(Operation(op_type, "op", inputs, {}, known, shape, dtype), operands)
    return str(outcome) if isinstance(outcome, Refusal) else outcome[0]
