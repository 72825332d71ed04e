"""Matrix products of values of an update, and the steps of Newton and Schulz made of them.

A step maps X to aX + (bA + cAA)X with A = X X' (Jordan et al., 2024, after Higham, 2008): an odd
polynomial of X's singular values, so it commutes with transposing, and steps on steps are steps.
"""

from __future__ import annotations

import math

from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum

STEPS = "newton_schulz"

_ODD, _PRODUCT, _TRANSPOSE = "odd", "matmul", "transpose"


def transposed(algebra: Algebra, value: Sum) -> Sum:
    """A value with its last two axes swapped; products are element by element."""
    found: Sum = {}
    for product, factor in value.items():
        one = algebra.number(factor)
        for number, exponent in product:
            one = algebra.multiplied(one, algebra.raised(_swapped(algebra, number), exponent))
        found = algebra.added([found, one])
    return found


def total(algebra: Algebra, name: str, value: Sum) -> Sum:
    """A sum, or the like, over all elements: in whatever order they stand."""
    things = {algebra.made(n)[0] for p in value for n, _ in p if not _is_scalar(algebra, n)}
    return algebra.thing(
        f"{name} of", transposed(algebra, value) if things == {_TRANSPOSE} else value
    )


def product(algebra: Algebra, one: Sum, other: Sum) -> Sum:
    """A matrix product; the odd polynomial of a step where it is one."""
    one, left = _pulled(algebra, one)
    other, right = _pulled(algebra, other)
    squared = algebra.thing(_PRODUCT, other, transposed(algebra, other))
    doubled = algebra.thing(_PRODUCT, squared, squared)
    terms = {next(iter(squared)), next(iter(doubled))}
    is_odd = algebra.by_factors(one).keys() == terms
    found = algebra.thing(_ODD, other) if is_odd else algebra.thing(_PRODUCT, one, other)
    return algebra.multiplied(algebra.multiplied(left, right), found)


def folded(algebra: Algebra, value: Sum) -> Sum:
    """A sum, as steps of Newton and Schulz where it is one."""
    odd = [p for p in value if len(p) == 1 and algebra.made(p[0][0])[0] == _ODD]
    if len(odd) != 1:
        return value
    (of,) = algebra.made(odd[0][0][0])[1]
    rest = {p: f for p, f in value.items() if p != odd[0]}
    if rest.keys() != of.keys():
        return value
    # Factors are products of constants, rounded in another order: double precision is far finer.
    shares = [rest[p] / of[p] for p in of]
    if not all(math.isclose(share, shares[0], rel_tol=1e-9) for share in shares):
        return value
    only = algebra.only(of)
    if only is not None and algebra.made(only)[0] == STEPS:
        return of
    return algebra.thing(STEPS, of)


def _swapped(algebra: Algebra, number: int) -> Sum:
    name, of = algebra.made(number)
    if _is_scalar(algebra, number):
        return algebra.once(number)
    if name == _TRANSPOSE:
        return of[0]
    if name == STEPS:
        return algebra.thing(STEPS, transposed(algebra, of[0]))
    return algebra.thing(_TRANSPOSE, algebra.once(number))


def _is_scalar(algebra: Algebra, number: int) -> bool:
    return algebra.is_plain(algebra.once(number)) or algebra.made(number)[0].endswith(" of")


def _pulled(algebra: Algebra, value: Sum) -> tuple[Sum, Sum]:
    """A value, and the plain numbers that all of it is times."""
    if len(value) != 1:
        return value, algebra.number(1.0)
    ((product, factor),) = value.items()
    plain = tuple(p for p in product if algebra.is_plain(algebra.once(p[0])))
    return {tuple(p for p in product if p not in plain): 1.0}, {plain: factor}
