"""What XLA compiles of ops has their bits: single ops, and random programs of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.ordering import ordered_ops
from tf_wu_shard.rules.compiled import EXACT, SPELLED_OUT, can_compile
from tf_wu_shard.tensorflow_private.compiled_function import make_compiled_function
from tf_wu_shard.tensorflow_private.function_graph import op_def
from tf_wu_shard.weight_update.rewrite.compiled_body import compiled_body

_TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "bool")

# Whole vectors of any width, and some elements that fill none.
_SIZE = 1027

# Zeros of both signs, infinities, no number, halves, subnormal and the largest numbers.
_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, 1e-40, -1e-40, 65504.0, 3e38)


def _operands(op_type: str) -> list[str]:
    definition = op_def(op_type)
    assert definition is not None
    return [argument.name for argument in definition.input_arg]


def _values(dtype: str, seed: int) -> tf.Tensor:
    draw = np.random.default_rng(seed)
    if dtype == "bool":
        return tf.constant(draw.random(_SIZE) < 0.5)
    if tf.as_dtype(dtype).is_integer:
        return tf.constant(draw.integers(-99, 99, _SIZE), dtype)
    numbers = draw.standard_normal(_SIZE) * np.exp(4 * draw.standard_normal(_SIZE))
    numbers[::5] = draw.choice(_SPECIAL, len(numbers[::5]))
    return tf.cast(tf.constant(numbers), dtype)


def _bits(tensor: tf.Tensor) -> np.ndarray:
    """The bits of a tensor, all that are no number alike."""
    array = tensor.numpy()
    if not tensor.dtype.is_floating:
        return np.asarray(array)
    bits = array.view(f"u{array.itemsize}").copy()
    bits[np.isnan(array.astype(np.float64))] = np.iinfo(bits.dtype).max
    return np.asarray(bits)


def _compiled(graph: tf.Graph, results: Sequence[str], *, exact: bool) -> Any:
    """A function of a graph's placeholders that yields some of its values."""
    ops = ordered_ops(graph.as_graph_def().node)
    own = [op for op in ops if op.type not in ("Placeholder", "Const")]
    by_name = {op.name: op for op in ops}
    body, arguments = compiled_body(own, [*map(Value, results)], by_name, exact=exact)
    function = make_compiled_function(
        body.name, body.nodes, body.arguments, [f"{v.op}:{v.index}" for v in body.outputs], ()
    )
    zero = [tf.constant(0)] * body.takes_zero

    def call(values: dict[str, tf.Tensor]) -> Any:
        return function.call_flat(*zero, *(values[value.op] for value in arguments))

    return call


def _single(op_type: str, dtype: str, result: str) -> tuple[tf.Graph, dict[str, tf.Tensor]] | None:
    """A graph of one op on values of a type; None where it takes none of that type."""
    names = _operands(op_type)
    values: dict[str, tf.Tensor] = {}
    for number in range(len(names)):
        kind = "bool" if op_type == "SelectV2" and not number else dtype
        values[f"in_{number}"] = _values(kind, number)
    if op_type == "Cast" and dtype.startswith(("float", "bfloat")) and result.startswith("int"):
        # What is no integer of the type has no defined result.
        kept = tf.abs(values["in_0"]) < 1e4
        values["in_0"] = tf.where(kept, values["in_0"], tf.ones_like(values["in_0"]))
    attributes = {"DstT": tf.as_dtype(result)} if op_type == "Cast" else {}
    with tf.Graph().as_default() as graph:
        inputs = [tf.compat.v1.placeholder(v.dtype, v.shape, n) for n, v in values.items()]
        try:
            operands = dict(zip(names, inputs, strict=True))
            getattr(tf.raw_ops, op_type)(**operands, **attributes, name="result")
        except TypeError:
            return None
    return graph, values


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("op_type", sorted(EXACT | SPELLED_OUT))
def test_of_an_exact_op_xla_gives_the_bits_of_the_kernel(op_type: str, dtype: str) -> None:
    for result in _TYPES if op_type == "Cast" else (dtype,):
        made = _single(op_type, dtype, result)
        taken = can_compile(op_type, {tf.as_dtype(dtype).as_datatype_enum}, exact=True)
        if made is None or not taken:
            continue
        graph, values = made
        attributes = {"DstT": tf.as_dtype(result)} if op_type == "Cast" else {}
        names = _operands(op_type)
        operands = dict(zip(names, values.values(), strict=True))
        expected = getattr(tf.raw_ops, op_type)(**operands, **attributes)
        found = _compiled(graph, ["result"], exact=True)(values)[0]
        if op_type in ("Maximum", "Minimum"):
            # Of two zeros, the kernel takes the one or the other, by their place.
            found, expected = (tf.where(t == 0, tf.zeros_like(t), t) for t in (found, expected))
        np.testing.assert_array_equal(_bits(found), _bits(expected))


_UNARY = ("Abs", "Neg", "Square", "Sqrt", "Sign")
_BINARY = ("AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference")


def _random_program(seed: int, dtype: str) -> tuple[tf.Graph, dict[str, tf.Tensor], list[Op]]:
    """A graph of twelve ops on two tensors and two scalars, each op on what comes before it."""
    draw = np.random.default_rng(seed)
    values = {f"in_{i}": tf.abs(_values(dtype, 10 * seed + i)) + 0.1 for i in range(2)}
    scalars = draw.standard_normal(2)
    values |= {f"in_{i + 2}": tf.cast(s, dtype) for i, s in enumerate(scalars)}
    with tf.Graph().as_default() as graph:
        made = [tf.compat.v1.placeholder(v.dtype, v.shape, n) for n, v in values.items()]
        for number in range(12):
            # One operand is always a tensor, and mostly a new one.
            first = made[-1] if number and draw.random() < 0.7 else made[draw.integers(2)]
            if draw.random() < 0.3:
                op_type, operands = str(draw.choice(_UNARY)), [first]
            else:
                op_type = str(draw.choice(_BINARY))
                operands = [first, made[draw.integers(len(made))]]
                operands = operands[:: draw.choice([1, -1])]
            names = _operands(op_type)
            wired = dict(zip(names, operands, strict=True))
            made.append(getattr(tf.raw_ops, op_type)(**wired, name=f"op_{number}"))
    ops = ordered_ops(graph.as_graph_def().node)
    return graph, values, [op for op in ops if op.type != "Placeholder"]


def _op_by_op(ops: Sequence[Op], values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """What kernels compute, one after the other."""
    known = dict(values)
    for op in ops:
        names = _operands(op.type)
        operands = [known[value.op] for value in op.inputs]
        known[op.name] = getattr(tf.raw_ops, op.type)(**dict(zip(names, operands, strict=True)))
    return known


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(12))
def test_of_a_program_of_exact_ops_xla_gives_the_bits_of_the_kernels(seed: int, dtype: str) -> None:
    graph, values, ops = _random_program(seed, dtype)
    expected = _op_by_op(ops, values)
    names = [op.name for op in ops]
    # All of what is computed, and the last alone, where XLA is freest to rearrange the rest.
    for results in (names, names[-1:]):
        found = _compiled(graph, results, exact=True)(values)
        for name, one in zip(results, found, strict=True):
            np.testing.assert_array_equal(_bits(one), _bits(expected[name]), err_msg=name)


def test_left_to_itself_xla_rounds_some_of_these_programs_otherwise() -> None:
    apart = 0
    for seed in range(12):
        graph, values, ops = _random_program(seed, "float32")
        expected = _op_by_op(ops, values)
        last = ops[-1].name
        found = _compiled(graph, [last], exact=False)(values)[0]
        apart += bool((_bits(found) != _bits(expected[last])).any())
    assert apart >= 3


def test_equal_bodies_have_one_name() -> None:
    names = set()
    for prefix in ("a", "b"):
        with tf.Graph().as_default() as graph:
            x, y = (tf.compat.v1.placeholder(tf.float32, [4], f"{prefix}{i}") for i in range(2))
            tf.raw_ops.Mul(x=tf.raw_ops.AddV2(x=x, y=y), y=x, name=f"{prefix}_result")
        ops = ordered_ops(graph.as_graph_def().node)
        own = [op for op in ops if op.type != "Placeholder"]
        by_name = {op.name: op for op in ops}
        body, _ = compiled_body(own, [Value(f"{prefix}_result")], by_name, exact=True)
        names.add(body.name)
    assert len(names) == 1
