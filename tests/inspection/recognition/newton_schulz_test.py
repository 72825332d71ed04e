"""Steps of Newton and Schulz are found, whatever stands on end, and no other polynomial is one."""

from __future__ import annotations

import pytest

from tests.inspection.recognition.algebra_test import said
from tf_wu_shard.inspection.recognition import newton_schulz
from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum


@pytest.fixture
def algebra() -> Algebra:
    return Algebra()


def step(algebra: Algebra, x: Sum, factor: float = 2.0, times: float = 1.0) -> Sum:
    """A step of Newton and Schulz on X."""
    a = newton_schulz.product(algebra, x, newton_schulz.transposed(algebra, x))
    aa = newton_schulz.product(algebra, algebra.scaled(a, 3.0), a)
    b = algebra.added([algebra.scaled(a, -4.0), aa])
    moved = algebra.scaled(newton_schulz.product(algebra, b, x), times)
    return newton_schulz.folded(algebra, algebra.added([algebra.scaled(x, factor), moved]))


def test_steps_of_newton_and_schulz_are_found_whatever_stands_on_end(algebra: Algebra) -> None:
    g, m = algebra.thing("g"), algebra.thing("m")
    x = algebra.added([g, algebra.scaled(m, 0.9)])
    once, twice = step(algebra, x), step(algebra, step(algebra, x))
    assert once == twice and said(algebra, twice, g=g, m=m) == "newton_schulz(g + m)"
    turned = newton_schulz.transposed(algebra, x)
    assert newton_schulz.transposed(algebra, step(algebra, turned)) == once
    assert newton_schulz.transposed(algebra, turned) == x


def test_another_polynomial_is_no_step(algebra: Algebra) -> None:
    g, m = algebra.thing("g"), algebra.thing("m")
    a = newton_schulz.product(algebra, g, newton_schulz.transposed(algebra, g))
    even = newton_schulz.folded(algebra, algebra.added([g, newton_schulz.product(algebra, a, m)]))
    assert "newton_schulz" not in said(algebra, even, g=g, m=m)
    squares = newton_schulz.product(algebra, g, g)
    assert "newton_schulz" not in said(algebra, squares, g=g)


def test_a_norm_is_the_same_of_what_is_transposed(algebra: Algebra) -> None:
    g = algebra.thing("g")
    turned = newton_schulz.transposed(algebra, algebra.raised(g, 2.0))
    one = newton_schulz.total(algebra, "sum", turned)
    assert one == newton_schulz.total(algebra, "sum", algebra.raised(g, 2.0))
