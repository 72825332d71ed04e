"""What rules say that ops compute is what TensorFlow computes, and what is not known stays open."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping

import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tests.graph.tracing import bare_view
from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum
from tf_wu_shard.inspection.recognition.value_rules import RULES, reduced, relabelled, transposed

# What things of these names are, of the numbers that they are made of.
MADE: Mapping[str, Callable[..., float]] = {
    "sign": lambda x: math.copysign(1.0, x),
    "abs": abs,
    "max": max,
    "min": min,
    "clip": lambda x, low, high: min(max(x, low), high),
    "select": lambda chosen, one, other: one if chosen else other,
    "greater": lambda x, y: x > y,
    "less": lambda x, y: x < y,
    "greaterequal": lambda x, y: x >= y,
    "lessequal": lambda x, y: x <= y,
    "power": lambda x, y: x**y,
    "sum": lambda x: x,
}

# Numbers that no wrong formula agrees on by luck.
OPERANDS = (-1.75, 0.3, 2.6)

# TensorFlow computes these of numbers that are not negative.
POSITIVE = frozenset({"Sqrt", "Rsqrt", "Pow"})

# Whose operands are no single numbers.
OTHERS = frozenset({"BiasAdd"})


def computed(algebra: Algebra, value: Sum, things: Mapping[int, float]) -> float:
    """The number that a sum is where its things are numbers."""

    def of(number: int) -> float:
        if number in things:
            return things[number]
        name, parts = algebra.made(number)
        return float(MADE[name](*(computed(algebra, part, things) for part in parts)))

    return sum(
        factor * math.prod(of(number) ** exponent for number, exponent in product)
        for product, factor in value.items()
    )


@pytest.mark.parametrize("op_type", sorted(set(RULES) - OTHERS))
def test_a_rule_computes_what_the_op_does(op_type: str) -> None:
    algebra, op = Algebra(), getattr(tf.raw_ops, op_type)
    names = [name for name in inspect.signature(op).parameters if name != "name"]
    numbers = [abs(n) for n in OPERANDS] if op_type in POSITIVE else [*OPERANDS]
    given = names if op_type != "AddN" else OPERANDS
    numbers = numbers[: len(given)]
    things = [algebra.thing(f"x{number}") for number in range(len(given))]
    known = {algebra.only(thing) or 0: numbers[n] for n, thing in enumerate(things)}
    found = computed(algebra, RULES[op_type](algebra, things), known)
    operands: list[object] = [tf.constant(number) for number in numbers]
    if op_type in ("Select", "SelectV2"):
        operands[0] = tf.constant(True)
    named = {names[0]: operands} if op_type == "AddN" else dict(zip(names, operands, strict=True))
    # Single precision against double.
    assert found == pytest.approx(float(op(**named)), rel=1e-6)


def test_a_power_of_a_number_that_is_not_known_stays_a_power() -> None:
    algebra = Algebra()
    x, y = algebra.thing("x"), algebra.thing("y")
    assert RULES["Pow"](algebra, [x, algebra.number(2.0)]) == algebra.multiplied(x, x)
    assert RULES["Pow"](algebra, [x, y]) == algebra.thing("power", x, y)


def test_the_greater_of_two_is_the_same_in_any_order_and_their_difference_is_not() -> None:
    algebra = Algebra()
    x, y = algebra.thing("x"), algebra.thing("y")
    for op_type, same in (("Maximum", True), ("Minimum", True), ("Sub", False), ("Less", False)):
        rule = RULES[op_type]
        assert (rule(algebra, [x, y]) == rule(algebra, [y, x])) is same


REDUCED = """
x = Placeholder() [3,4]
axis = Const() {value=1} []
all = Sum(x, axis) []
rows = Sum(x, axis) [3]
kept = Sum(x, axis) [3,1]
norm = EuclideanNorm(x, axis) [3]
most = Max(x, axis) []
one = Placeholder() [1,1]
same = Sum(one, axis) [1]
"""


def text_of(name: str) -> str:
    """What a reduction of `REDUCED` yields, as text; x is what it reduces."""
    view, algebra = view_of(REDUCED), Algebra()
    x = algebra.thing("x")
    found = reduced(algebra, view, view.ops[name], x)
    return "None" if found is None else algebra.text(found, {algebra.only(x) or 0: "x"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("all", "sum of(x)"),
        ("rows", "sum[-1] of(x)"),
        ("kept", "sum[-1] kept of(x)"),
        ("norm", "sum[-1] of(x^2)^0.5"),
        ("most", "largest of(x)"),
        ("same", "x"),
    ],
)
def test_a_sum_over_axes_says_which_and_of_one_element_is_that(name: str, text: str) -> None:
    assert text_of(name) == text


def test_only_the_last_two_axes_are_known_to_be_swapped() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=(2, 3, 4), name="x")
        tf.raw_ops.Transpose(x=x, perm=[0, 2, 1], name="matrices")
        tf.raw_ops.Transpose(x=x, perm=[2, 0, 1], name="other")
        tf.raw_ops.Transpose(x=x, perm=tf.raw_ops.Placeholder(dtype=tf.int32), name="unknown")
    view = bare_view(graph.as_graph_def(add_shapes=True))
    algebra = Algebra()
    value = algebra.thing("x")
    (turned, *others) = (
        transposed(algebra, view, view.ops[name], value)
        for name in ("matrices", "other", "unknown")
    )
    assert turned == algebra.thing("transpose", value)
    assert others == [None, None]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ((12,), (3, 4), "x"),  # all of a variable, in any shape
        ((1,), (1, 1), "x"),
        ((1, 4), (4,), "x"),
        ((4,), (4, 1), "as[n,1](x)"),
        ((4,), (1, 4), "as[1,n](x)"),
        ((4,), (2, 2), "as[n,n](x)"),
        (None, (4,), "x"),
    ],
)
def test_a_row_is_told_from_a_column(
    before: tuple[int, ...] | None, after: tuple[int, ...], text: str
) -> None:
    algebra = Algebra()
    x = algebra.thing("x")
    found = relabelled(algebra, before, after, x, wholes={12})
    assert algebra.text(found, {algebra.only(x) or 0: "x"}) == text
