"""Ops whose result at each place depends on their operands at that place alone.

For an elementwise f, f(x)[lanes of shard i] = f(x[lanes of shard i]): the local op is the same op.
Padding lanes compute garbage (a 0/0, say) and are never looked at.

What is to be proved of each: run on the shards of its operands, whatever their padding holds, it
gives the shards of its result, bit for bit; scalars among the operands stay scalars, and of smaller
tensors that every replica holds, what is broadcast over its shard is cut out.

BiasAdd is one of them where the bias has as many elements as the value (Keras adds tensors of shape
[1, n] by it). Its kernel wants a matrix, which a shard is not, so there it is a plain addition.
"""

from __future__ import annotations

from tf_wu_shard.rules import registry

_ARITHMETIC = (
    *("Abs", "Neg", "Sign", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Floor", "Ceil"),
    *("Round", "Rint", "Cast", "ZerosLike", "OnesLike"),
)

_TRANSCENDENTAL = (
    *("Exp", "Expm1", "Log", "Log1p", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh"),
    *("Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Sigmoid", "Erf", "Erfc", "Erfinv", "Ndtri"),
    *("Lgamma", "Digamma"),
)

_ACTIVATIONS = ("Softplus", "Softsign", "Relu", "Relu6", "Elu", "Selu", "LeakyRelu")

_TESTS = ("IsFinite", "IsInf", "IsNan", "LogicalNot", "Invert")

_BINARY = (
    *("Add", "AddV2", "Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan", "FloorDiv"),
    *("FloorMod", "Mod", "TruncateDiv", "TruncateMod", "Maximum", "Minimum", "Pow"),
    *("SquaredDifference", "Xdivy", "Xlogy", "Xlog1py", "Atan2", "NextAfter"),
)

_COMPARISONS = (
    *("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"),
    *("LogicalAnd", "LogicalOr", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    *("LeftShift", "RightShift"),
)

# These want their operands in one shape, but for scalars; SelectV2 broadcasts, Select does not.
_OF_ONE_SHAPE = ("AddN", "Select", "ClipByValue")

# Ops that are another op, of the same element type, on a vector.
ON_VECTORS = {"BiasAdd": "AddV2"}

registry.register(
    registry.Family.ELEMENTWISE,
    registry.same_lanes,
    *(*_ARITHMETIC, *_TRANSCENDENTAL, *_ACTIVATIONS, *_TESTS, *_OF_ONE_SHAPE, *ON_VECTORS),
)
registry.register(
    registry.Family.ELEMENTWISE,
    registry.broadcast_lanes,
    *(*_BINARY, *_COMPARISONS, "SelectV2"),
)
