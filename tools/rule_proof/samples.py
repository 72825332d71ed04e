"""Calls of an op to prove its rule by: random shapes, element types and values.

An op's operands and element types are read off its definition; the few whose operands are not all
tensors of values (a shape, an axis, bounds) have an entry in a table.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.dtypes import RESOURCE
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.rules.operation import LocalOp, Operation
from tf_wu_shard.rules.registry import constants_of
from tf_wu_shard.rules.sums import SUMS
from tf_wu_shard.tensorflow_private import function_graph

_NUMBERS = (np.float32, np.float64, tf.bfloat16.as_numpy_dtype, np.int32)
_DTYPES = (*_NUMBERS, np.bool_)

# Ops whose operands have one shape, scalars too.
_SAME_SHAPE_ONLY = frozenset({"AddN", "IdentityN", "Select"})

# What a kernel says of operands that it does not take.
NOT_TAKEN = (tf.errors.InvalidArgumentError, tf.errors.AbortedError, tf.errors.InternalError)

# Operands that Python calls otherwise than the op's definition.
_NAMES = {("ExpandDims", "dim"): "axis", ("Select", "t"): "x", ("Select", "e"): "y"} | {
    (op_type, "reduction_indices"): "axis" for op_type in SUMS
}


@dataclasses.dataclass(frozen=True)
class Call:
    """One op with values for its operands.

    Attributes:
        op_type: The op's type.
        operands: Their values, in the order of the op's definition.
        cut: Which of them are in shards.
        attributes: Of the op, beyond what its operands tell.
        mark: The name of a mark that its node carries; "" where there is none.
    """

    op_type: str
    operands: tuple[np.ndarray, ...]
    cut: tuple[bool, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    mark: str = ""

    def run(self, operands: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """The outputs for these operands, computed by the op's kernel."""
        return run_op(self.op_type, operands, dict(self.attributes))

    def run_local(
        self, local: LocalOp | None, operands: Sequence[Any], num_rows: int = 0
    ) -> tuple[np.ndarray, ...]:
        """The outputs of what a shard computes.

        Args:
            local: What that is; None for the same op.
            operands: What it has of the operands, in the order of the call.
            num_rows: How many rows it has, where a table is cut.
        """
        if local is None:
            return self.run(operands)
        given = [
            operands[own]
            if isinstance(own, int)
            else np.asarray(own.of(num_rows), tf.as_dtype(own.dtype).as_numpy_dtype)
            for own in local.operands
        ]
        return run_op(local.type, given, {}) if local.type else self.run(given)

    def operation(self, result: np.ndarray) -> Operation:
        """The op as its rule sees it.

        Args:
            result: Its first result.
        """
        builder, arguments = GraphBuilder(()), definition(self.op_type).input_arg
        inputs = []
        for number, operand in enumerate(self.operands):
            handle = number < len(arguments) and arguments[number].type == RESOURCE
            dtype = RESOURCE if handle else tf.as_dtype(operand.dtype).as_datatype_enum
            inputs.append(builder.note(Value(f"operand_{number}"), dtype))
        attributes = {
            name: value.as_datatype_enum if isinstance(value, tf.DType) else value
            for name, value in self.attributes
        }
        made = builder.at("", "").op(self.op_type, inputs, self.op_type, **attributes)
        if self.mark:
            builder.nodes[-1].attr[self.mark].b = True
        return Operation(
            type=self.op_type,
            name=self.op_type,
            inputs=tuple(inputs),
            attributes=builder.nodes[-1].attr,
            constants={
                number: tuple(int(element) for element in self.operands[number].reshape(-1))
                for number in constants_of(self.op_type)
                if number < len(inputs)
            },
            shape=result.shape,
            dtype=builder.dtype(made),
        )


def calls(op_type: str, random: np.random.Generator) -> Iterator[Call]:
    """Calls of an op; nothing where no kernel of it runs here."""
    if op_type in SPECIAL:
        for shape in shapes(random):
            yield from SPECIAL[op_type](op_type, random, shape)
        return
    count = arity(op_type)
    cuts = [[True] * count]
    if takes_scalars(op_type):
        cuts += [[number != whole for number in range(count)] for whole in range(count)]
    for dtype in element_types(op_type):
        for shape, cut in itertools.product(shapes(random), cuts):
            # An op that does not take such operands is not asked about them.
            with contextlib.suppress(*NOT_TAKEN):
                yield call(op_type, random, shape, cut, dtype)
                if not all(cut) and len(shape) > 1 and dtype is np.float32:
                    for smaller in (shape[-1:], (*shape[:-1], 1)):
                        yield call(op_type, random, shape, cut, dtype, smaller)


def shapes(random: np.random.Generator) -> list[tuple[int, ...]]:
    """Shapes of every rank, no dimension like another; most of whole vector registers."""
    small = [int(n) for n in random.choice(np.arange(2, 20), 3, replace=False)]
    return [
        *((), (1,), (small[0],), (int(random.integers(100, 300)),)),
        (64 * int(random.integers(3, 40)),),
        (small[1] + 8, 16 * (small[2] // 2 + 1)),
        (small[0], 3, 64),
        (17, 256),
    ]


@functools.cache
def definition(op_type: str) -> Any:
    """The op's definition.

    Raises:
        ValueError: If TensorFlow has no such op.
    """
    found = function_graph.op_def(op_type)
    if found is None:
        raise ValueError(f"TensorFlow has no op {op_type}")
    return found


def arity(op_type: str) -> int:
    """How many tensors an op of this type takes; 2 where it takes any number."""
    return sum(2 if a.number_attr or a.type_list_attr else 1 for a in definition(op_type).input_arg)


def run_op(
    op_type: str, operands: Sequence[Any], attributes: dict[str, Any]
) -> tuple[np.ndarray, ...]:
    """Runs an op eagerly, its operands given in the order of its definition."""
    return tuple(np.asarray(r.numpy()) for r in called(op_type, operands, attributes))


def called(op_type: str, operands: Sequence[Any], attributes: dict[str, Any]) -> list[tf.Tensor]:
    """The results of an op, its operands given in the order of its definition."""
    named: dict[str, Any] = dict(attributes)
    given = list(operands)
    for argument in definition(op_type).input_arg:
        several = argument.number_attr or argument.type_list_attr
        name = _NAMES.get((op_type, argument.name), argument.name)
        named[name] = given if several else given.pop(0)
    result = getattr(tf.raw_ops, op_type)(**named)
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    return [r for r in results if isinstance(r, tf.Tensor)]


def values(
    random: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32
) -> np.ndarray:
    """Random numbers that differ from element to element, not centred on zero."""
    if np.dtype(dtype).kind == "b":
        return np.asarray(random.integers(0, 2, shape), np.bool_)
    if np.dtype(dtype).kind in "iu":
        # Positive: integers are divided by, and shifted by.
        return np.asarray(random.integers(1, 9, shape), dtype)
    return np.asarray(random.normal(size=shape) * 2 + 0.5, dtype)


def element_types(op_type: str) -> list[Any]:
    """The element types of the table for which the op has a kernel."""
    arguments = definition(op_type).input_arg
    varied = {a.type_attr or a.type_list_attr for a in arguments} - {""}
    if not varied:
        return [tf.as_dtype(arguments[0].type).as_numpy_dtype]
    name = min(varied)
    attribute = next(a for a in definition(op_type).attr if a.name == name)
    allowed = {tf.as_dtype(t) for t in attribute.allowed_values.list.type}
    found = []
    for dtype in _DTYPES:
        if allowed and tf.as_dtype(dtype) not in allowed:
            continue
        try:
            call(op_type, np.random.default_rng(0), (2,), [True] * arity(op_type), dtype)
        except (tf.errors.NotFoundError, tf.errors.UnimplementedError, *NOT_TAKEN):
            continue
        found.append(dtype)
    return found


def takes_scalars(op_type: str) -> bool:
    """Whether one of its operands may be a scalar, or otherwise smaller than the rest."""
    arguments = definition(op_type).input_arg
    return len(arguments) > 1 and op_type not in _SAME_SHAPE_ONLY


def call(
    op_type: str,
    random: np.random.Generator,
    shape: tuple[int, ...],
    cut: list[bool],
    dtype: Any,
    smaller: tuple[int, ...] = (),
) -> Call:
    """A call whose operand i has `shape` if `cut[i]`, else the shape `smaller`; it has run once."""
    operands = []
    own = [a for a in definition(op_type).input_arg for _ in range(2 if a.number_attr else 1)]
    own += own[-1:] * (len(cut) - len(own))
    for argument, sharded in zip(own, cut, strict=True):
        fixed = tf.as_dtype(argument.type).as_numpy_dtype if argument.type else dtype
        operands.append(values(random, shape if sharded else smaller, fixed))
    attributes = (("DstT", tf.int32),) if op_type == "Cast" else ()
    made = Call(op_type, tuple(operands), tuple(cut), attributes)
    made.run(made.operands)
    return made


def _clipped(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    """Bounds are scalars, or as large as what is clipped."""
    for cut in ((True, False, False), (True, True, True)):
        low, high = (
            values(random, shape if own else ()) + np.float32(shift)
            for own, shift in zip(cut[1:], (-2, 2), strict=True)
        )
        yield Call(op_type, (values(random, shape), low, high), cut)


def _biased(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    """A bias of as many elements as the value."""
    size = int(np.prod(shape))
    yield Call(op_type, (values(random, (1, size)), values(random, (size,))), (True, True))


def _reshaped(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    size = int(np.prod(shape))
    for target in ([size], [1, size], [-1, 1], [size // 2, 2] if size % 2 == 0 else [size]):
        wanted = np.array(target, np.int32)
        yield Call(op_type, (values(random, shape), wanted), (True, False))


def _expanded(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    for axis in range(-1, len(shape) + 1):
        yield Call(op_type, (values(random, shape), np.array(axis, np.int32)), (True, False))


def _squeezed(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    for padded in ((1, *shape), (*shape, 1, 1)):
        yield Call(op_type, (values(random, padded),), (True,))


def _to_own_shape(
    op_type: str, random: np.random.Generator, shape: tuple[int, ...]
) -> Iterator[Call]:
    for target in (shape, (1, *shape)):
        wanted = np.array(target, np.int32)
        yield Call(op_type, (values(random, shape), wanted), (True, False))


def _ensured(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    yield Call(op_type, (values(random, shape),), (True,), (("shape", shape),))


_Sampler = Callable[[str, np.random.Generator, tuple[int, ...]], Iterator[Call]]

SPECIAL: dict[str, _Sampler] = {
    "ClipByValue": _clipped,
    "BiasAdd": _biased,
    "Reshape": _reshaped,
    "ExpandDims": _expanded,
    "Squeeze": _squeezed,
    "BroadcastTo": _to_own_shape,
    "EnsureShape": _ensured,
}
