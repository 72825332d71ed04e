"""Ops whose result at each place depends on their operands at that place alone.

For an elementwise f, f(x)[lanes of shard i] = f(x[lanes of shard i]): the local op is the same op.
Padding lanes compute garbage (a 0/0, say) and are never looked at.

BiasAdd is one of them where the bias has as many elements as the value (Keras adds tensors of shape
[1, n] by it). Its kernel wants a matrix, which a shard is not, so there it is a plain addition.
"""

from __future__ import annotations

from tf_wu_shard.rules import registry

_UNARY = (
    *("Abs", "Neg", "Sign", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Exp", "Expm1"),
    *("Log", "Log1p", "Floor", "Ceil", "Round", "Rint", "Tanh", "Sigmoid", "Softplus"),
    *("Softsign", "Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Erf", "Erfc", "Sin", "Cos"),
    *("Atan", "IsFinite", "IsInf", "IsNan", "LogicalNot", "Cast", "ZerosLike", "OnesLike"),
)

_BINARY = (
    *("Add", "AddV2", "Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan", "FloorDiv"),
    *("FloorMod", "TruncateDiv", "Maximum", "Minimum", "Pow", "SquaredDifference", "Xdivy"),
    *("Xlogy", "Xlog1py", "Atan2", "Less", "LessEqual", "Greater", "GreaterEqual", "Equal"),
    *("NotEqual", "LogicalAnd", "LogicalOr"),
)

_MORE = ("AddN", "SelectV2", "ClipByValue")

# Ops that are another op, of the same element type, on a vector.
ON_VECTORS = {"BiasAdd": "AddV2"}

registry.register(registry.Family.ELEMENTWISE, registry.same_lanes, *_UNARY, *_BINARY, *_MORE)
registry.register(registry.Family.ELEMENTWISE, registry.same_lanes, *ON_VECTORS)
