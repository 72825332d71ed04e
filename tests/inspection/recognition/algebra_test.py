"""What is the same has the same form, however it was computed, and what is not has not."""

from __future__ import annotations

import time

import pytest

from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum


@pytest.fixture
def algebra() -> Algebra:
    return Algebra()


def said(algebra: Algebra, value: Sum, **things: Sum) -> str:
    """A sum as text, with names for things."""
    return algebra.text(value, {algebra.only(t) or 0: name for name, t in things.items()})


def test_sums_are_written_out_and_cancel(algebra: Algebra) -> None:
    x, y = algebra.thing("x"), algebra.thing("y")
    squared = algebra.raised(algebra.added([x, algebra.scaled(y, -1.0)]), 2.0)
    assert said(algebra, squared, x=x, y=y) == "x*y + x^2 + y^2"
    assert algebra.added([x, algebra.scaled(x, -1.0)]) == {}
    rest = algebra.added([algebra.scaled(x, 0.75), algebra.scaled(x, 0.25)])
    assert rest == x


def test_a_share_is_the_same_number_times_everything(algebra: Algebra) -> None:
    x, y = algebra.thing("x"), algebra.thing("y")
    rate = algebra.thing("rate", plain=True)
    total = algebra.added([x, algebra.scaled(y, -2.0)])
    share = algebra.scaled(rate, 0.3)
    assert algebra.is_share(algebra.multiplied(share, total), total)
    # A constant in float32 and the difference of two are rounded apart.
    assert algebra.is_share(algebra.scaled(total, 0.1), algebra.scaled(total, 0.1 * (1 + 1e-7)))
    assert not algebra.is_share(algebra.added([algebra.multiplied(share, x), y]), total)
    assert not algebra.is_share(algebra.multiplied(x, total), total)
    assert not algebra.is_share({}, {}) and not algebra.is_share(x, total)


def test_plain_numbers_are_left_out_of_text_and_of_roots(algebra: Algebra) -> None:
    x, rate = algebra.thing("x"), algebra.thing("rate", plain=True)
    scaled = algebra.multiplied(rate, x)
    assert said(algebra, scaled, x=x) == "x" and scaled != x
    root = algebra.raised(algebra.added([x, algebra.number(1e-6)]), 0.5)
    assert root == algebra.raised(x, 0.5)
    assert said(algebra, algebra.added([x, rate]), x=x) == "1 + x"


def test_a_root_of_a_square_is_an_absolute_value(algebra: Algebra) -> None:
    x = algebra.thing("x")
    assert said(algebra, algebra.absolute(x), x=x) == "abs(x)"
    assert algebra.absolute(algebra.absolute(x)) == algebra.absolute(x)
    assert algebra.raised(algebra.raised(x, 0.5), 2.0) == x


def test_what_is_subtracted_under_a_root_is_told_from_what_is_added(algebra: Algebra) -> None:
    x, y = algebra.thing("x"), algebra.thing("y")
    minus = algebra.raised(algebra.added([x, algebra.scaled(y, -1.0)]), -0.5)
    plus = algebra.raised(algebra.added([x, y]), -0.5)
    assert said(algebra, minus, x=x, y=y) == "(-y + x)^-0.5"
    assert said(algebra, plus, x=x, y=y) == "(x + y)^-0.5"


def test_numbers_that_are_not_finite_are_no_factors(algebra: Algebra) -> None:
    assert () not in algebra.raised(algebra.number(0.0), -1.0) != {}
    assert () not in algebra.number(float("nan")) and () not in algebra.number(float("inf"))
    huge = algebra.number(1e300)
    assert said(algebra, algebra.raised(huge, 3.0)) == "1"


def test_a_sum_that_doubles_50_times_takes_no_time(algebra: Algebra) -> None:
    start = time.perf_counter()
    value = algebra.added([algebra.thing("x"), algebra.thing("y")])
    for level in range(50):
        value = algebra.multiplied(value, algebra.added([value, algebra.thing(f"z{level}")]))
        value = algebra.thing("max", value, algebra.raised(value, 0.5))
    assert len(said(algebra, value)) < 1000
    assert time.perf_counter() - start < 1
