"""What ops compute of sums of products: by element, over axes, of matrices, in other shapes.

A rule for what is not done element by element returns None where nothing is known of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.recognition import newton_schulz
from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum

Rule = Callable[[Algebra, Sequence[Sum]], Sum]


def _sub(algebra: Algebra, operands: Sequence[Sum]) -> Sum:
    return algebra.added([operands[0], algebra.scaled(operands[1], -1.0)])


def _quotient(algebra: Algebra, operands: Sequence[Sum]) -> Sum:
    return algebra.multiplied(operands[0], algebra.raised(operands[1], -1.0))


def _squared_difference(algebra: Algebra, operands: Sequence[Sum]) -> Sum:
    return algebra.raised(_sub(algebra, operands), 2.0)


def _powered(algebra: Algebra, operands: Sequence[Sum]) -> Sum:
    base, exponent = operands
    if not exponent or set(exponent) == {()}:
        return algebra.raised(base, exponent.get((), 0.0))
    return algebra.thing("power", base, exponent)


def _raised(exponent: float) -> Rule:
    return lambda algebra, operands: algebra.raised(operands[0], exponent)


def _made(name: str) -> Rule:
    return lambda algebra, operands: algebra.thing(name, *operands)


def _of_any_order(name: str) -> Rule:
    def rule(algebra: Algebra, operands: Sequence[Sum]) -> Sum:
        return algebra.thing(name, *sorted(operands, key=lambda o: sorted(o.items())))

    return rule


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Add", "AddV2", "AddN", "BiasAdd"), Algebra.added),
    "Sub": _sub,
    "Neg": lambda algebra, operands: algebra.scaled(operands[0], -1.0),
    "Mul": lambda algebra, operands: algebra.multiplied(*operands),
    **dict.fromkeys(("RealDiv", "Div", "DivNoNan"), _quotient),
    "Square": _raised(2.0),
    "Sqrt": _raised(0.5),
    "Rsqrt": _raised(-0.5),
    **dict.fromkeys(("Reciprocal", "Inv"), _raised(-1.0)),
    "Pow": _powered,
    "SquaredDifference": _squared_difference,
    "Abs": lambda algebra, operands: algebra.absolute(operands[0]),
    "Sign": _made("sign"),
    "Maximum": _of_any_order("max"),
    "Minimum": _of_any_order("min"),
    "ClipByValue": _made("clip"),
    **dict.fromkeys(("Select", "SelectV2"), _made("select")),
    **{name: _made(name.lower()) for name in ("Greater", "Less", "GreaterEqual", "LessEqual")},
}


# For each op, the power of its operand that it sums; a mean is a sum times a number that is fixed.
SUMS = {"Sum": 1.0, "Mean": 1.0, "L2Loss": 2.0, "EuclideanNorm": 2.0}
EXTREMES = {"Max": "largest", "Min": "least", "All": "all", "Any": "any"}
# Matrix products, and for each operand, what says that it is transposed.
PRODUCTS = {
    "MatMul": (("transpose_a",), ("transpose_b",)),
    "BatchMatMulV2": (("adj_x",), ("adj_y",)),
}
TRANSPOSE = "Transpose"


def reduced(algebra: Algebra, view: GraphView, op: Op, operand: Sum) -> Sum | None:
    """What a sum or an extreme over axes yields."""
    shape, result = view.shape(op.inputs[0]), view.shape(Value(op.name))
    if shape is None or result is None:
        return None
    if SUMS.get(op.type) == 2.0:
        operand = algebra.multiplied(operand, operand)
    name = "sum" if op.type in SUMS else EXTREMES[op.type]
    if math.prod(result) == math.prod(shape):
        found = operand
    elif math.prod(result) == 1:
        found = newton_schulz.total(algebra, name, operand)
    else:
        kept = " kept" if len(result) == len(shape) else ""
        found = algebra.thing(f"{name}[{_axes(view, op, len(shape))}]{kept} of", operand)
    return algebra.raised(found, 0.5) if op.type == "EuclideanNorm" else found


def product(algebra: Algebra, op: Op, operands: Sequence[Sum]) -> Sum:
    """What a product of matrices yields."""
    turned = [
        newton_schulz.transposed(algebra, operand)
        if any(name in op.node.attr and op.node.attr[name].b for name in names)
        else operand
        for operand, names in zip(operands, PRODUCTS[op.type], strict=True)
    ]
    return newton_schulz.product(algebra, *turned)


def transposed(algebra: Algebra, view: GraphView, op: Op, operand: Sum) -> Sum | None:
    """What a transpose yields that swaps the last two axes; other orders are not known."""
    order = view.integers(op.inputs[1]) or ()
    rank = len(order)
    if order != (*range(rank - 2), rank - 1, rank - 2):
        return None
    return newton_schulz.transposed(algebra, operand)


def relabelled(
    algebra: Algebra,
    before: Sequence[int] | None,
    after: Sequence[int] | None,
    operand: Sum,
    wholes: Collection[int],
) -> Sum:
    """What the same elements are in another shape.

    Args:
        algebra: Of the sums.
        before: The shape that they had, None if it is not known.
        after: The one that they have.
        operand: What they were.
        wholes: How many elements the variables of the update have: those are the same in any shape.
    """
    whole = before is not None and (math.prod(before) in wholes or math.prod(before) == 1)
    if before == after or whole or before is None or after is None:
        return operand
    dropped = before[: len(before) - len(after)]
    if set(dropped) == {1} and before[len(dropped) :] == after:
        return operand  # Leading axes of one element are there again where it is broadcast.
    # Where a row or a column stands decides how it is broadcast: of a stack of matrices too.
    sizes = ",".join("1" if size == 1 else "n" for size in after)
    if after == (*before, 1):
        sizes = "n,1"
    elif after == (*before[:-1], 1, *before[-1:]):
        sizes = "1,n"
    return algebra.thing(f"as[{sizes}]", operand)


def _axes(view: GraphView, op: Op, rank: int) -> str:
    """The axes of a sum, counted from the last."""
    axes = view.integers(op.inputs[1]) if len(op.inputs) > 1 else None
    if axes is None:
        return f"? {op.name}"
    return ",".join(str(a % rank - rank) for a in sorted(axes))
