"""Which gradients enter chains of sums or products, which Grappler puts in another order."""

from __future__ import annotations

import pytest

from tf_wu_shard.weight_update.analysis.types import BodyOp, Operand, OperandKind
from tf_wu_shard.weight_update.rewrite.grappler_order import gradients_in_chains

SCALAR = Operand(OperandKind.SCALAR)


def gradient(key: int) -> Operand:
    return Operand(OperandKind.GRADIENT, key)


def result(position: int) -> Operand:
    return Operand(OperandKind.BODY, position)


def op(op_type: str, *operands: Operand) -> BodyOp:
    return BodyOp(op_type, (op_type,), operands)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ([op("Mul", gradient(0), SCALAR), op("Square", result(0))], set()),
        ([op("Mul", gradient(0), SCALAR), op("Mul", result(0), gradient(1))], {0, 1}),
        ([op("Mul", gradient(0), SCALAR), op("AddV2", result(0), gradient(1))], set()),
        ([op("Add", gradient(0), gradient(2)), op("AddV2", SCALAR, result(0))], {0, 2}),
        ([op("Sub", gradient(0), SCALAR), op("Sub", result(0), SCALAR)], set()),
        (
            [
                op("Mul", SCALAR, SCALAR),
                op("Rsqrt", gradient(3)),
                op("Mul", gradient(4), result(0)),
                op("Mul", result(1), result(1)),
            ],
            {4},
        ),
    ],
    ids=["one product", "products", "product in a sum", "both sums", "differences", "of several"],
)
def test_gradients_in_chains(body: list[BodyOp], found: set[int]) -> None:
    assert gradients_in_chains(body) == found
