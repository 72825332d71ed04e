"""Finds the gradient reductions of a graph and takes packed ones apart.

A strategy flattens and concatenates gradients, reduces the pack, splits it and reshapes the parts.
Summing commutes with concatenation, so each part is a reduction of its own; that is how the rest of
the analysis sees them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tf_wu_shard.analysis.types import GradientReduction
from tf_wu_shard.dialects.base import CarriedReduction, CarriedSlices
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Refusal
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.shapes import source_operands


def gradient_reductions(
    view: GraphView, carried: Iterable[CarriedReduction]
) -> tuple[tuple[GradientReduction, ...], tuple[Refusal, ...]]:
    """Splits the carried reductions into one per gradient.

    Args:
        view: The graph.
        carried: What the dialect recognised.

    Returns:
        The reductions, numbered in order, and a refusal for each that has no static shape.
    """
    found: list[GradientReduction] = []
    refusals: list[Refusal] = []
    for reduction in carried:
        if isinstance(reduction, CarriedSlices):
            found.append(_slices(view, reduction, len(found)))
            continue
        for operands, results in _parts(view, reduction):
            shape = view.shape(operands[0])
            if shape is None or any(view.shape(o) != shape for o in operands):
                where = reduction.carriers[0]
                refusals.append(Refusal(where, "it reduces a tensor of no static shape"))
                continue
            found.append(
                GradientReduction(
                    key=len(found),
                    operands=operands,
                    results=results,
                    size=math.prod(shape),
                    dtype=view.dtype(results[0]),
                    divisor=reduction.divisor,
                    carriers=reduction.carriers,
                )
            )
    return tuple(found), tuple(refusals)


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


class ResultNames(dict[Value, tuple[int, int]]):
    """For every value that is a reduced gradient, `(reduction key, replica)`.

    Attributes:
        sparse: Keys of those that are parts of sparse gradients.
    """

    def __init__(self, sparse: Iterable[int] = ()) -> None:
        super().__init__()
        self.sparse = frozenset(sparse)
        self._values: dict[tuple[int, int], list[Value]] = {}

    def add(self, value: Value, key: int, replica: int) -> None:
        """Notes one more name of a reduced gradient."""
        self[value] = (key, replica)
        self._values.setdefault((key, replica), []).append(value)

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
            if op.type == "IdentityN":
                stack.append((Value(op.name, slot), key, replica))
            elif slot in source_operands(op.type, 0, 1):
                stack.append((Value(op.name), key, replica))
    return names


def _parts(
    view: GraphView, reduction: CarriedReduction
) -> list[tuple[tuple[Value, ...], tuple[Value, ...]]]:
    """The operands and results of each gradient in one carried reduction."""
    packs = [view.producer(operand) for operand in reduction.operands]
    splits = [_only_split(view, result) for result in reduction.results]
    whole = [(reduction.operands, reduction.results)]
    if all(s is not None and view.ops[s].node.attr["num_split"].i == 1 for s in splits):
        # A pack of one gradient: nothing to concatenate, and a split into one part.
        return [(reduction.operands, tuple(Value(str(split)) for split in splits))]
    if any(p.type != "ConcatV2" for p in packs) or any(s is None for s in splits):
        return whole
    parts = [pack.inputs[:-1] for pack in packs]
    if len({len(p) for p in parts}) != 1:
        return whole
    for pieces, split in zip(parts, splits, strict=True):
        sizes = [view.shape(piece) for piece in pieces]
        split_sizes = [view.shape(Value(str(split), i)) for i in range(len(pieces))]
        if sizes != split_sizes or any(s is None or len(s) != 1 for s in sizes):
            return whole
    return [
        (
            tuple(p[i] for p in parts),
            tuple(Value(str(split), i) for split in splits),
        )
        for i in range(len(parts[0]))
    ]


def _only_split(view: GraphView, result: Value) -> str | None:
    """The SplitV that takes a packed sum apart, if nothing else looks at the sum."""
    consumers = view.consumers(result)
    if len(consumers) == 1 and consumers[0][0].type == "SplitV" and consumers[0][1] == 0:
        return consumers[0][0].name
    return None
