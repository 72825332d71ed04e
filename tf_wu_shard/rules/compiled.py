"""What XLA makes of ops on CPUs: to the last bit what TensorFlow's own kernels make, or nearly.

A kernel rounds each result to its element type. So does XLA, op by op; but where it sees two ops it
may contract them into one, which rounds once (a product and a sum), or replace them by others that
are equal on paper (a quotient of a quotient). Between two ops of an exact body stands a value that
XLA cannot see through, so what is to be proved is a matter of single ops: of each op of `EXACT`, on
every element type it takes, that XLA gives the kernel's bits for the same operands, infinities,
zeros of both signs and subnormal numbers among them. A NaN has to be one; which it is does not
matter, and of 0.0 and -0.0 either may be the larger one: it is to a kernel, too, by their place in
a tensor. `SPELLED_OUT` are ops that XLA does otherwise, said in ops that it does alike.

Exponentials, logarithms, powers and reciprocal square roots are approximated, each by its own
polynomials: they are in neither, and stay with the kernels, but for a body that need not be exact.
"""

from __future__ import annotations

from collections.abc import Set

from tf_wu_shard.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, INT64

_NUMBERS = frozenset((FLOAT16, BFLOAT16, FLOAT32, FLOAT64))
_INTEGERS = frozenset((INT32, INT64))

# Element types of which it is proved.
_TYPES = _NUMBERS | _INTEGERS | {BOOL}

EXACT = frozenset(
    (
        *("Abs", "Neg", "Square", "Sqrt", "Floor", "Ceil", "Round", "ZerosLike", "OnesLike"),
        *("Add", "AddV2", "Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan"),
        *("SquaredDifference", "Cast", "SelectV2", "IsFinite", "IsInf", "IsNan"),
        *("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"),
        *("LogicalAnd", "LogicalNot", "LogicalOr"),
    )
)

# XLA's maximum of a number and a NaN may be the number, and its sign of -0.0 is -0.0.
SPELLED_OUT = frozenset(("Maximum", "Minimum", "Sign"))

# As XLA has them; AddN adds in the order of its operands, which a kernel may change.
NEARLY = frozenset(
    (
        *("Rsqrt", "Reciprocal", "Inv", "Exp", "Expm1", "Log", "Log1p", "Pow", "Tanh", "Sigmoid"),
        *("Softplus", "Relu", "Erf", "AddN", "ClipByValue", "Xdivy", "Xlogy"),
    )
)

CAN_COMPILE = EXACT | SPELLED_OUT | NEARLY


def can_compile(op_type: str, dtypes: Set[int], *, exact: bool) -> bool:
    """Whether XLA compiles an op.

    Args:
        op_type: The op's type.
        dtypes: The element types that it has to do with, as DataType numbers.
        exact: Whether its bits have to be those of the kernel.
    """
    known = EXACT | SPELLED_OUT if exact else CAN_COMPILE
    # A kernel raises an error where an integer is divided by zero, which XLA does not, and XLA
    # rounds no integers.
    types = _NUMBERS if op_type in ("Div", "RealDiv", "Round") else _TYPES
    # Of a number that is too large for an integer, and of a NaN, XLA makes another one.
    truncates = op_type == "Cast" and bool(dtypes & _NUMBERS) and bool(dtypes & _INTEGERS)
    return op_type in known and dtypes <= types and not truncates
