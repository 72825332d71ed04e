"""Finds the gradient reductions of a graph, each gradient of a pack on its own."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices, Gathered
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.step.packs import parts, unflattened
from tf_wu_shard.step.reductions import EnsuredShape, GradientReduction


def gradient_reductions(
    view: GraphView,
    carried: Iterable[CarriedReduction],
    ensured: Iterable[EnsuredShape] = (),
) -> tuple[GradientReduction, ...]:
    """Splits the carried reductions into one per gradient.

    Args:
        view: The graph, in which the ensured shapes are given.
        carried: What the dialect recognised.
        ensured: The shapes that gradients are made sure to have.

    Returns:
        The reductions, numbered in order.
    """
    checked = {value: one for one in ensured for value in one.values}
    found: list[GradientReduction] = []
    for reduction in carried:
        if isinstance(reduction, CarriedSlices):
            found.append(_slices(view, reduction, len(found)))
            continue
        for operands, results in parts(view, reduction):
            shapes = {view.shape(operand) for operand in operands}
            shape = shapes.pop() if len(shapes) == 1 else None
            found.append(
                GradientReduction(
                    key=len(found),
                    operands=operands,
                    results=results,
                    size=None if shape is None else math.prod(shape),
                    dtype=view.dtype(results[0]),
                    divisor=reduction.divisor,
                    carriers=reduction.carriers,
                    ensured=checked.get(operands[0], checked.get(unflattened(view, operands[0]))),
                )
            )
    return tuple(found)


def _slices(view: GraphView, reduction: CarriedSlices, key: int) -> GradientReduction:
    """A part of a sparse gradient."""
    return GradientReduction(
        key=key,
        operands=reduction.operands,
        results=reduction.results,
        size=0,
        dtype=view.dtype(reduction.results[0]),
        divisor=1,
        carriers=reduction.carriers,
        gathered=reduction.gathered,
        order=reduction.order,
    )


class SparseParts:
    """Which reductions are parts of one sparse gradient: those that the same ops carry."""

    def __init__(self, reductions: Iterable[GradientReduction]) -> None:
        self._carriers: dict[int, tuple[str, ...]] = {}
        self._carried: dict[str, list[int]] = {}
        for reduction in reductions:
            if reduction.gathered is not None:
                self._carriers[reduction.key] = reduction.carriers
                for carrier in reduction.carriers:
                    self._carried.setdefault(carrier, []).append(reduction.key)

    def with_others(self, keys: Iterable[int]) -> set[int]:
        """The keys of some reductions, and those of the other parts of their gradients."""
        found = set(keys)
        carriers = {name for key in found for name in self._carriers.get(key, ())}
        return found.union(*(self._carried[name] for name in carriers))


def sparse_gradients(parts: Sequence[GradientReduction]) -> list[list[GradientReduction]]:
    """Some parts of sparse gradients, those of one gradient together, in order.

    Args:
        parts: The parts. Those of several gradients are distinguished by what carries them.
    """
    if sum(part.gathered is Gathered.VALUES for part in parts) < 2:
        return [list(parts)]
    by_key, found = SparseParts(parts), dict[int, list[GradientReduction]]()
    for part in parts:
        found.setdefault(min(by_key.with_others([part.key])), []).append(part)
    return list(found.values())


class ResultNames(dict[Value, tuple[int, int]]):
    """For every value that is a reduced gradient, `(reduction key, replica)`.

    Attributes:
        sparse: Keys of those that are parts of sparse gradients.
        broadcast: Keys of those that updates of larger variables use, as a number that all
            gradients are divided by. They stay whole on every replica.
    """

    def __init__(self, sparse: Iterable[int] = ()) -> None:
        super().__init__()
        self.sparse = frozenset(sparse)
        self.broadcast: frozenset[int] = frozenset()
        self._values: dict[tuple[int, int], list[Value]] = {}

    def add(self, value: Value, key: int, replica: int) -> None:
        """Notes one more name of a reduced gradient."""
        self[value] = (key, replica)
        self._values.setdefault((key, replica), []).append(value)

    def is_apart(self, value: Value, keys: Container[int]) -> bool:
        """Whether a value is a reduced gradient that may be there in the shards of others only.

        Args:
            value: The value.
            keys: The reductions that the others are distinguished from.
        """
        if value not in self:
            return False
        key, _ = self[value]
        return key not in keys and key not in self.broadcast

    def of(self, key: int, replica: int) -> tuple[Value, ...]:
        """All names of one reduced gradient on one replica."""
        return tuple(self._values.get((key, replica), ()))


def result_names(view: GraphView, reductions: Iterable[GradientReduction]) -> ResultNames:
    """Every value that is a reduced gradient, perhaps under another shape.

    Args:
        view: The graph.
        reductions: Its gradient reductions.

    Returns:
        The values.
    """
    reductions = tuple(reductions)
    names = ResultNames(r.key for r in reductions if r.gathered is not None)
    stack = [(r.results[i], r.key, i) for r in reductions for i in range(r.num_replicas)]
    while stack:
        value, key, replica = stack.pop()
        if value in names:
            continue
        names.add(value, key, replica)
        for op, slot in view.consumers(value):
            if family_of(op.type) is not Family.RELABEL:
                continue
            if op.passes_each_on or slot == 0:
                stack.append((op.result_of(slot), key, replica))
    return names
