"""What op types make of the elements of vectors of sizes, such as `Reshape` takes.

As `shape_functions`, for `IntegersOf`: elements that are open are None. What is asked for are
scalars and vectors alone; the inference sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tf_wu_shard.dtypes import INT32, INT64
from tf_wu_shard.graph.constants import integers
from tf_wu_shard.graph.dimensions import Function, IntegersOf, Rule, ShapeOf, product
from tf_wu_shard.graph.op import Op, Value

Constant: TypeAlias = Callable[[Value], Any | None]

# More elements than a shape has dimensions, or a pack has gradients.
_MOST_ELEMENTS = 1 << 16


def _constant(op: Op, index: int, constant: Constant) -> Rule:
    yield from ()
    tensor = constant(Value(op.name, index))
    if tensor is None or tensor.dtype not in (INT32, INT64):
        return None
    found = integers(tensor)
    return None if found is None or len(found) > _MOST_ELEMENTS else found


def _dimensions(op: Op, index: int, constant: Constant) -> Rule:
    return (yield ShapeOf(op.inputs[index]))


def _count(op: Op, index: int, constant: Constant) -> Rule:
    size = product((yield ShapeOf(op.inputs[0])))
    return (size,)


def _rank(op: Op, index: int, constant: Constant) -> Rule:
    dims = yield ShapeOf(op.inputs[0])
    return None if dims is None else (len(dims),)


def _same_elements(op: Op, index: int, constant: Constant) -> Rule:
    return (yield IntegersOf(op.operands_of(index)[0]))


def _packed(op: Op, index: int, constant: Constant) -> Rule:
    found: list[int | None] = []
    for value in op.inputs:
        element = yield IntegersOf(value)
        found.append(element[0] if element is not None and len(element) == 1 else None)
    return tuple(found)


def _joined(op: Op, index: int, constant: Constant) -> Rule:
    found: list[int | None] = []
    for value in op.inputs[:-1]:
        dims = yield ShapeOf(value)
        if not dims or dims[0] is None or len(found) + dims[0] > _MOST_ELEMENTS:
            return None
        part = yield IntegersOf(value)
        found += part if part is not None else (None,) * dims[0]
    return tuple(found)


def _looked_up(op: Op, index: int, constant: Constant) -> Rule:
    """GatherV2 of a vector."""
    elements = yield IntegersOf(op.inputs[0])
    places = yield IntegersOf(op.inputs[1])
    if elements is None or places is None:
        return None
    return tuple(elements[p] if p is not None and 0 <= p < len(elements) else None for p in places)


def _strided(op: Op, index: int, constant: Constant) -> Rule:
    """StridedSlice of a vector, by constants."""
    elements = yield IntegersOf(op.inputs[0])
    bounds = [integers(constant(value)) for value in op.inputs[1:4]]
    # Other masks are not met on vectors of sizes.
    if elements is None or op.attribute("ellipsis_mask").i:
        return None
    if op.attribute("new_axis_mask").i or any(b is None or len(b) != 1 for b in bounds):
        return None
    begin, end, stride = (b[0] for b in bounds if b is not None)
    if op.attribute("shrink_axis_mask").i & 1:
        place = begin + len(elements) if begin < 0 else begin
        return (elements[place],) if 0 <= place < len(elements) else None
    if stride == 0:
        return None
    first = None if op.attribute("begin_mask").i & 1 else begin
    last = None if op.attribute("end_mask").i & 1 else end
    return elements[slice(first, last, stride)]


def _run(op: Op, index: int, constant: Constant) -> Rule:
    """Slice of a vector."""
    elements = yield IntegersOf(op.inputs[0])
    begin = yield IntegersOf(op.inputs[1])
    size = yield IntegersOf(op.inputs[2])
    if elements is None or begin is None or size is None or len(begin) != 1 or len(size) != 1:
        return None
    if begin[0] is None or size[0] is None or begin[0] < 0:
        return None
    return elements[begin[0] :] if size[0] < 0 else elements[begin[0] : begin[0] + size[0]]


def _product_of(op: Op, index: int, constant: Constant) -> Rule:
    """Prod of a whole vector."""
    elements = yield IntegersOf(op.inputs[0])
    axes = yield IntegersOf(op.inputs[1])
    if elements is None or axes not in ((0,), (-1,)):
        return None
    return (product(elements),)


def _arithmetic(compute: Callable[[int, int], int]) -> Function:
    """Elementwise on two vectors of one length, or a vector and a scalar."""

    def function(op: Op, index: int, constant: Constant) -> Rule:
        a = yield IntegersOf(op.inputs[0])
        b = yield IntegersOf(op.inputs[1])
        if a is None or b is None or (len(a) != len(b) and 1 not in (len(a), len(b))):
            return None
        length = max(len(a), len(b)) if a and b else 0
        pairs = zip(_spread(a, length), _spread(b, length), strict=True)
        return tuple(None if x is None or y is None else compute(x, y) for x, y in pairs)

    return function


def _spread(elements: Sequence[int | None], length: int) -> Sequence[int | None]:
    return tuple(elements) * length if len(elements) == 1 else elements[:length]


def _divided(a: int, b: int) -> int:
    # A division by zero fails when it runs, so any answer holds.
    return a // b if b else 0


SIZES: dict[str, Function] = {
    **dict.fromkeys(("Identity", "IdentityN", "StopGradient", "Cast"), _same_elements),
    **dict.fromkeys(("Reshape", "ExpandDims", "Squeeze", "EnsureShape"), _same_elements),
    **dict.fromkeys(("Shape", "ShapeN"), _dimensions),
    **dict.fromkeys(("Add", "AddV2"), _arithmetic(lambda a, b: a + b)),
    "Const": _constant,
    "Size": _count,
    "Rank": _rank,
    "Pack": _packed,
    "ConcatV2": _joined,
    "GatherV2": _looked_up,
    "StridedSlice": _strided,
    "Slice": _run,
    "Prod": _product_of,
    "Sub": _arithmetic(lambda a, b: a - b),
    "Mul": _arithmetic(lambda a, b: a * b),
    "FloorDiv": _arithmetic(_divided),
    "Maximum": _arithmetic(max),
    "Minimum": _arithmetic(min),
}
