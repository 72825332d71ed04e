"""What op types make of the shapes of their operands.

A shape function is a generator, see `dimensions.Rule`. It must hold for every graph that runs
without an error, and need not hold for others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from tf_wu_shard.graph.constants import integers
from tf_wu_shard.graph.dimensions import (
    Dims,
    Function,
    IntegersOf,
    Rule,
    ShapeOf,
    broadcast,
    merged,
    product,
)
from tf_wu_shard.graph.op import Op, Value

Constant: TypeAlias = Callable[[Value], Any | None]


def _like_first(op: Op, index: int, constant: Constant) -> Rule:
    return (yield ShapeOf(op.inputs[0]))


def _like_same(op: Op, index: int, constant: Constant) -> Rule:
    """Passes each operand on by number."""
    return (yield ShapeOf(op.inputs[index]))


def _broadcasting(op: Op, index: int, constant: Constant) -> Rule:
    found = yield ShapeOf(op.inputs[0])
    for value in op.inputs[1:]:
        found = broadcast(found, (yield ShapeOf(value)))
    return found


def _of_one_shape(op: Op, index: int, constant: Constant) -> Rule:
    found: Dims | None = None
    for value in op.inputs:
        found = merged(found, (yield ShapeOf(value)))
    return found


def _selected(op: Op, index: int, constant: Constant) -> Rule:
    """Select: the condition may be a vector of rows; the others have one shape."""
    found = yield ShapeOf(op.inputs[1])
    return merged(found, (yield ShapeOf(op.inputs[2])))


def _scalar(op: Op, index: int, constant: Constant) -> Rule:
    yield from ()
    return ()


def _reshaped(op: Op, index: int, constant: Constant) -> Rule:
    target = yield IntegersOf(op.inputs[1])
    if target is None:
        return None
    dims: Dims = tuple(None if d is None or d < 0 else d for d in target)
    if dims.count(None) != 1:
        return dims
    size = product((yield ShapeOf(op.inputs[0])))
    rest = math.prod(d for d in dims if d is not None)
    if size is None or rest == 0 or size % rest:
        return dims
    return tuple(size // rest if d is None else d for d in dims)


def _ensured(op: Op, index: int, constant: Constant) -> Rule:
    shape = op.attribute("shape").shape
    dims = tuple(d.size if d.size >= 0 else None for d in shape.dim)
    return merged(None if shape.unknown_rank else dims, (yield ShapeOf(op.inputs[0])))


def _expanded(op: Op, index: int, constant: Constant) -> Rule:
    dims = yield ShapeOf(op.inputs[0])
    axis = integers(constant(op.inputs[1]))
    if dims is None or axis is None or len(axis) != 1:
        return None
    place = axis[0] + len(dims) + 1 if axis[0] < 0 else axis[0]
    return (*dims[:place], 1, *dims[place:])


def _squeezed(op: Op, index: int, constant: Constant) -> Rule:
    dims = yield ShapeOf(op.inputs[0])
    axes = op.attribute("squeeze_dims").list.i
    if dims is None or (not axes and None in dims):
        return None
    gone = {a % len(dims) for a in axes} if axes and dims else set(range(len(dims)))
    return tuple(d for i, d in enumerate(dims) if i not in gone or (not axes and d != 1))


def _transposed(op: Op, index: int, constant: Constant) -> Rule:
    order = yield IntegersOf(op.inputs[1])
    dims = yield ShapeOf(op.inputs[0])
    if order is None or dims is None or len(order) != len(dims):
        return None
    if sorted(o for o in order if o is not None) != list(range(len(dims))):
        return None
    return tuple(dims[o] for o in order if o is not None)


def _multiplied(op: Op, index: int, constant: Constant) -> Rule:
    """MatMul and BatchMatMul, one or both operands transposed."""
    batched = op.type != "MatMul"
    first, second = ("adj_x", "adj_y") if batched else ("transpose_a", "transpose_b")
    a = yield ShapeOf(op.inputs[0])
    b = yield ShapeOf(op.inputs[1])
    a_last, b_last = (
        (-2, -1) if op.attribute(first).b else (-1, -2),
        (-2, -1) if op.attribute(second).b else (-1, -2),
    )
    rows = a[a_last[1]] if a is not None and len(a) >= 2 else None
    columns = b[b_last[0]] if b is not None and len(b) >= 2 else None
    if not batched:
        return (rows, columns)
    if a is None or b is None:
        return None
    leading = broadcast(a[:-2], b[:-2])
    return None if leading is None else (*leading, rows, columns)


def _concatenated(op: Op, index: int, constant: Constant) -> Rule:
    axis = integers(constant(op.inputs[-1]))
    found: Dims | None = None
    lengths: list[int | None] = []
    for value in op.inputs[:-1]:
        dims = yield ShapeOf(value)
        if not dims or axis is None or len(axis) != 1:
            return None
        place = axis[0] % len(dims)
        lengths.append(dims[place])
        found = merged(found, (*dims[:place], None, *dims[place + 1 :]))
    if found is None or axis is None:
        return None
    known = [length for length in lengths if length is not None]
    total = sum(known) if len(known) == len(lengths) else None
    place = axis[0] % len(found)
    return (*found[:place], total, *found[place + 1 :])


def _split(op: Op, index: int, constant: Constant) -> Rule:
    """SplitV: the sizes of the parts are its second operand."""
    dims = yield ShapeOf(op.inputs[0])
    sizes = yield IntegersOf(op.inputs[1])
    axis = integers(constant(op.inputs[2]))
    if dims is None or sizes is None or axis is None or index >= len(sizes) or len(axis) != 1:
        return None
    place = axis[0] % len(dims) if dims else 0
    part = sizes[index]
    if part is not None and part < 0:
        others = [s for i, s in enumerate(sizes) if i != index and s is not None]
        whole = dims[place] if place < len(dims) else None
        part = None if whole is None or len(others) < len(sizes) - 1 else whole - sum(others)
    return (*dims[:place], part, *dims[place + 1 :])


def _reduced(op: Op, index: int, constant: Constant) -> Rule:
    dims = yield ShapeOf(op.inputs[0])
    axes = yield IntegersOf(op.inputs[1])
    keep = op.attribute("keep_dims").b
    if dims is None:
        return None
    known = [a for a in axes or () if a is not None]
    if axes is None or len(known) < len(axes):
        return (None,) * len(dims) if keep else None
    gone = {a % len(dims) for a in known} if dims else set()
    if keep:
        return tuple(1 if i in gone else d for i, d in enumerate(dims))
    return tuple(d for i, d in enumerate(dims) if i not in gone)


def _bias_gradient(op: Op, index: int, constant: Constant) -> Rule:
    dims = yield ShapeOf(op.inputs[0])
    if dims is None or len(dims) < 2:
        return (None,)
    return (dims[1] if op.attribute("data_format").s == b"NCHW" else dims[-1],)


def _shape_given(slot: int) -> Function:
    """The shape is the value of an operand."""

    def function(op: Op, index: int, constant: Constant) -> Rule:
        sizes = yield IntegersOf(op.inputs[slot])
        return None if sizes is None else tuple(s if s is None or s >= 0 else None for s in sizes)

    return function


def _segments(op: Op, index: int, constant: Constant) -> Rule:
    data = yield ShapeOf(op.inputs[0])
    numbers = yield ShapeOf(op.inputs[1])
    count = yield IntegersOf(op.inputs[2])
    if data is None or numbers is None or count is None or len(count) != 1:
        return None
    return (count[0], *data[len(numbers) :])


def _sliced(op: Op, index: int, constant: Constant) -> Rule:
    dims = yield ShapeOf(op.inputs[0])
    begins = yield IntegersOf(op.inputs[1])
    sizes = yield IntegersOf(op.inputs[2])
    if sizes is None:
        return dims if dims is None else (None,) * len(dims)
    found: list[int | None] = []
    for place, size in enumerate(sizes):
        if size is not None and size < 0:
            begin = begins[place] if begins is not None and place < len(begins) else None
            whole = dims[place] if dims is not None and place < len(dims) else None
            size = None if begin is None or whole is None else whole - begin
        found.append(size)
    return tuple(found)


def _summed_over_labels(op: Op, index: int, constant: Constant) -> Rule:
    """Einsum: each label has one length, but for labels that stand for several dimensions."""
    equation = op.attribute("equation").s.decode(errors="replace").replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    if not arrow or "." in equation or len(terms) != len(op.inputs):
        return None
    lengths: dict[str, int | None] = {}
    for term, value in zip(terms, op.inputs, strict=True):
        dims = yield ShapeOf(value)
        if dims is None or len(dims) != len(term):
            continue
        for label, length in zip(term, dims, strict=True):
            lengths[label] = length if lengths.get(label) in (None, 1) else lengths[label]
    # What is longer than 1 in one operand may be 1 in another: it is then broadcast.
    return tuple(lengths.get(label) for label in output)


def _stacked(op: Op, index: int, constant: Constant) -> Rule:
    """Pack."""
    found: Dims | None = None
    for value in op.inputs:
        found = merged(found, (yield ShapeOf(value)))
    if found is None:
        return None
    axis = op.attribute("axis").i % (len(found) + 1)
    return (*found[:axis], len(op.inputs), *found[axis:])


def _vector_of_sizes(op: Op, index: int, constant: Constant) -> Rule:
    dims = yield ShapeOf(op.inputs[index])
    return (None if dims is None else len(dims),)


def _scattered(op: Op, index: int, constant: Constant) -> Rule:
    """A dimension is cut into as many parts as a group has members."""
    dims = yield ShapeOf(op.inputs[0])
    groups = yield ShapeOf(op.inputs[1])
    axis = integers(constant(op.inputs[2]))
    if dims is None or groups is None or len(groups) != 2 or axis is None or len(axis) != 1:
        return None
    place, members = axis[0], groups[1]
    if not members or not 0 <= place < len(dims):
        return None
    length = dims[place]
    return (*dims[:place], None if length is None else length // members, *dims[place + 1 :])


def _declared(op: Op, index: int, constant: Constant) -> Rule:
    yield from ()
    declared = op.attribute("Sout").list.shape
    if index >= len(declared) or declared[index].unknown_rank:
        return None
    return tuple(d.size if d.size >= 0 else None for d in declared[index].dim)


_SAME_SHAPE = (
    *("Abs", "Neg", "Sign", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Floor", "Ceil"),
    *("Round", "Rint", "Cast", "ZerosLike", "OnesLike", "Exp", "Expm1", "Log", "Log1p", "Sin"),
    *("Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
    *("Sigmoid", "Erf", "Erfc", "Erfinv", "Ndtri", "Lgamma", "Digamma", "Softplus", "Softsign"),
    *("Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "IsFinite", "IsInf", "IsNan", "LogicalNot"),
    *("Invert", "BiasAdd", "Identity", "StopGradient", "PreventGradient", "Snapshot"),
    *("CollectiveReduceV2", "CrossReplicaSum", "XlaAllReduce", "XlaDynamicUpdateSlice"),
    *("ClipByValue", "CheckNumerics"),
)

_BROADCASTING = (
    *("Add", "AddV2", "Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan", "FloorDiv"),
    *("FloorMod", "Mod", "TruncateDiv", "TruncateMod", "Maximum", "Minimum", "Pow"),
    *("SquaredDifference", "Xdivy", "Xlogy", "Xlog1py", "Atan2", "NextAfter", "Less"),
    *("LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr"),
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift", "SelectV2"),
)

# Where the gradient of an activation enters, everything has one shape.
_ONE_SHAPE = (
    *("AddN", "ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad"),
    *("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"),
)

_REDUCTIONS = ("Sum", "Mean", "Prod", "Max", "Min", "All", "Any", "EuclideanNorm")

SHAPES: dict[str, Function] = {
    **dict.fromkeys(_SAME_SHAPE, _like_first),
    **dict.fromkeys(_BROADCASTING, _broadcasting),
    **dict.fromkeys(_ONE_SHAPE, _of_one_shape),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    **dict.fromkeys(("MatMul", "BatchMatMulV2", "BatchMatMulV3"), _multiplied),
    **dict.fromkeys(("IdentityN", "XlaOptimizationBarrier"), _like_same),
    "XlaReduceScatter": _scattered,
    "XlaCallModule": _declared,
    "Select": _selected,
    **dict.fromkeys(("L2Loss", "Size", "Rank"), _scalar),
    **dict.fromkeys(("Shape", "ShapeN"), _vector_of_sizes),
    "Pack": _stacked,
    "Reshape": _reshaped,
    "EnsureShape": _ensured,
    "ExpandDims": _expanded,
    "Squeeze": _squeezed,
    "Transpose": _transposed,
    "ConcatV2": _concatenated,
    "SplitV": _split,
    "BiasAddGrad": _bias_gradient,
    "Conv2DBackpropFilter": _shape_given(1),
    "Conv3DBackpropFilterV2": _shape_given(1),
    "DepthwiseConv2dNativeBackpropFilter": _shape_given(1),
    "StridedSliceGrad": _shape_given(0),
    "BroadcastTo": _shape_given(1),
    "Fill": _shape_given(0),
    "UnsortedSegmentSum": _segments,
    "Slice": _sliced,
    "Einsum": _summed_over_labels,
}
