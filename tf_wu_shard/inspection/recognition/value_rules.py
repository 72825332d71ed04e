"""What ops compute of sums of products, where every element is computed by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
