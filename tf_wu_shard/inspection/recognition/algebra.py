"""Sums of products, in a form in which what is the same has the same form.

A sum maps products to their known factors; a product is what it is made of, each with an exponent.
What is no sum of products (a maximum, a sign, a matrix product) is one thing by itself, made of
sums. Things have numbers, the same for the same, so that comparing is cheap however deep they go,
and a sum that grows too long becomes a thing: every step is done in constant time.

Some things are plain: a number that all elements share, such as a learning rate. Roots and
quotients leave out plain numbers that are added to others, as optimizers put them there against
divisions by zero, and take what is under a root for not negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

Product = tuple[tuple[int, float], ...]
Sum = Mapping[Product, float]
_Frozen = tuple[tuple[Product, float], ...]

# More terms than any known update has, and more factors of one.
_MOST_TERMS = 24

# Constants of a graph are mostly float32, each rounded by up to 6e-8; a product has a few of them.
_ROUNDED = 1e-6

# Longer than the form of any known update.
_LONGEST_TEXT = 500

ONE: Product = ()


class Algebra:
    """The things of one update, by number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, tuple[_Frozen, ...]], int] = {}
        self._made: list[tuple[str, tuple[_Frozen, ...]]] = []
        self._plain: set[int] = set()

    def number(self, value: float) -> Sum:
        """A known number."""
        if not math.isfinite(value):
            return self.thing(f"number {value}", plain=True)
        return {ONE: value} if value else {}

    def thing(self, name: str, *of: Sum, plain: bool = False) -> Sum:
        """A thing by itself.

        Args:
            name: Its name, or the function that makes it.
            of: What it is made of; where all of that is plain, so is it.
            plain: Whether it is a number that all elements share.
        """
        key = (name, tuple(map(_frozen, of)))
        if key not in self._numbers:
            self._numbers[key] = len(self._made)
            self._made.append(key)
            if plain or (of and all(map(self.is_plain, of))):
                self._plain.add(self._numbers[key])
        return self.once(self._numbers[key])

    def once(self, number: int) -> Sum:
        """A thing, once."""
        return {((number, 1.0),): 1.0}

    def made(self, number: int) -> tuple[str, tuple[Sum, ...]]:
        """The name of a thing and what it is made of."""
        name, of = self._made[number]
        return name, tuple(map(dict, of))

    def only(self, value: Sum) -> int | None:
        """The thing that a sum is, if it is one thing, once."""
        return only[0] if (only := _only(value)) is not None and only[1] == 1.0 else None

    def is_plain(self, value: Sum) -> bool:
        """Whether a sum is a number that all elements share."""
        return all(number in self._plain for product in value for number, _ in product)

    def leaves(self, value: Sum, within: str = "") -> set[int]:
        """The things that a sum is made of in the end, plain ones left out.

        Args:
            value: The sum.
            within: Only those that went into things of this name.
        """
        found: set[int] = set()
        pending = [(number, not within) for product in value for number, _ in product]
        seen: set[tuple[int, bool]] = set()
        while pending:
            number, counts = pending.pop()
            if (number, counts) in seen or number in self._plain:
                continue
            seen.add((number, counts))
            name, of = self._made[number]
            inside = counts or name == within
            pending += [(n, inside) for one in of for product, _ in one for n, _ in product]
            if not of and counts:
                found.add(number)
        return found

    def added(self, values: Iterable[Sum]) -> Sum:
        """The sum."""
        total: dict[Product, float] = {}
        for value in values:
            for product, factor in value.items():
                total[product] = total.get(product, 0.0) + factor
        return self._short({p: f for p, f in total.items() if f != 0.0})

    def scaled(self, value: Sum, factor: float) -> Sum:
        """A sum times a known number."""
        return {product: known * factor for product, known in value.items() if factor != 0.0}

    def multiplied(self, one: Sum, other: Sum) -> Sum:
        """The product."""
        one, other = self._as_factor(one), self._as_factor(other)
        if len(one) * len(other) > _MOST_TERMS:
            one, other = self._whole(one), self._whole(other)
        total: dict[Product, float] = {}
        for product, factor in one.items():
            for times, by in other.items():
                new = _joined(product, times)
                total[new] = total.get(new, 0.0) + factor * by
        found = {p: f for p, f in total.items() if f != 0.0}
        too_long = any(len(product) > _MOST_TERMS for product in found)
        return self.thing("sum", found) if too_long else found

    def raised(self, value: Sum, exponent: float) -> Sum:
        """A sum to the power of a known number; see above for what that leaves out."""
        if exponent == 2.0:
            return self.multiplied(value, value)
        if exponent == 1.0 or (not value and exponent > 0.0):
            return value
        if not value:
            return self.thing("power", value, self.number(exponent))
        if not self.is_plain(value):
            value = self.varying(value)
        if len(value) != 1:
            value = self._whole(value)
        ((product, factor),) = value.items()
        if factor < 0.0 and not exponent.is_integer():
            value = self.thing("sum", value)
            ((product, factor),) = value.items()
        if not math.isfinite(scale := _power(factor, exponent)):
            return self.thing("power", value, self.number(exponent))
        return {tuple(self._root(n, e, exponent) for n, e in product): scale}

    def varying(self, value: Sum) -> Sum:
        """A sum without the plain numbers in it."""
        return {p: f for p, f in value.items() if any(n not in self._plain for n, _ in p)}

    def absolute(self, value: Sum) -> Sum:
        """The absolute value."""
        return self.raised(self.multiplied(value, value), 0.5)

    def by_factors(self, value: Sum) -> dict[Product, Sum]:
        """For each product in a sum, plain numbers left out, the plain numbers it is times."""
        found: dict[Product, dict[Product, float]] = {}
        for product, factor in value.items():
            rest = tuple(p for p in product if p[0] not in self._plain)
            plain = tuple(p for p in product if p[0] in self._plain)
            found.setdefault(rest, {})[plain] = factor
        return dict(found)

    @staticmethod
    def is_near(one: Sum, other: Sum) -> bool:
        """Whether two sums are the same but for how constants are rounded."""
        return one.keys() == other.keys() and all(
            math.isclose(one[product], other[product], rel_tol=_ROUNDED) for product in one
        )

    def is_share(self, value: Sum, of: Sum) -> bool:
        """Whether a sum is another one times one number that all elements share."""
        if len(value) != len(of) or not of:
            return False
        product, factor = next(iter(of.items()))
        inverse = {tuple((n, -e) for n, e in product): 1.0 / factor}
        for times, by in value.items():
            share = self.multiplied({times: by}, inverse)
            if self.is_plain(share) and self.is_near(self.multiplied(share, of), value):
                return True
        return False

    def text(self, value: Sum, names: Mapping[int, str], signed: bool = False) -> str:
        """A sum as text, without plain numbers that products are times.

        Args:
            value: The sum.
            names: What to call things.
            signed: Whether terms that are subtracted are distinguished from those that are added.
        """
        known = dict(names)
        # What a thing is made of was made before it.
        for number, (name, of) in enumerate(self._made):
            if number not in known:
                parts = (self._said(dict(one), known, name == "sum") for one in of)
                text = (
                    f"{'' if name == 'sum' else name}({', '.join(parts)})" if of else f"?{number}"
                )
                known[number] = _cut(text)
        return self._said(value, known, signed)

    def _said(self, value: Sum, known: Mapping[int, str], signed: bool) -> str:
        terms = []
        for product, factors in self.by_factors(value).items():
            parts = (known[n] + ("" if e == 1.0 else f"^{e:g}") for n, e in product)
            text = "*".join(sorted(parts)) or "1"
            minus = signed and all(f < 0.0 for f in factors.values())
            terms.append(f"-{text}" if minus else text)
        return _cut(" + ".join(sorted(terms)) or "0")

    def _root(self, number: int, before: float, exponent: float) -> tuple[int, float]:
        after = before * exponent
        if before % 2.0 == 0.0 and after % 2.0 != 0.0 and self._made[number][0] != "abs":
            ((number, _),) = next(iter(self.thing("abs", self.once(number))))
        return number, after

    def _as_factor(self, value: Sum) -> Sum:
        return self._whole(value) if len(value) > 1 and self.is_plain(value) else value

    def _whole(self, value: Sum) -> Sum:
        return value if len(value) <= 1 else self.thing("sum", value)

    def _short(self, value: Sum) -> Sum:
        return value if len(value) <= _MOST_TERMS else self._whole(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else "?"


def _frozen(value: Sum) -> _Frozen:
    return tuple(sorted(value.items()))


def _only(value: Sum) -> tuple[int, float] | None:
    if len(value) != 1:
        return None
    ((product, factor),) = value.items()
    return product[0] if len(product) == 1 and factor == 1.0 else None


def _joined(one: Product, other: Product) -> Product:
    exponents = dict(one)
    for number, exponent in other:
        exponents[number] = exponents.get(number, 0.0) + exponent
    return tuple(sorted((n, e) for n, e in exponents.items() if e != 0.0))


def _power(factor: float, exponent: float) -> float:
    try:
        return float(factor**exponent)
    except (ZeroDivisionError, OverflowError):
        return math.inf
