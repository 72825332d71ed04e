"""What is late in rounds, weight by weight, as checkpoints hold it."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tf_wu_shard.partial_sums.rounds.rounds import Rounds
from tf_wu_shard.partial_sums.rounds.shared import SharedRounds
from tf_wu_shard.partial_sums.steps.sums import StepSums
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage.late_gradients import LISTS, Parts, dense, is_late

Dims: TypeAlias = tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a part of a weight's gradient is among what a round sums.

    Attributes:
        number: Which of the round's gradients.
        elements: Which of its elements, where it is a pack of several weights' gradients; else
            None.
        total: How many elements it has, where it is a pack.
    """

    number: int
    elements: slice | None = None
    total: int = 0


class InRounds:
    """Gradients of one weight that no step has taken yet, in sums that all workers have."""

    def __init__(
        self, shared: SharedRounds, places: Mapping[str, Place], shape: Sequence[int]
    ) -> None:
        """Of a weight that rounds train.

        Args:
            shared: The rounds.
            places: By the name of a part, where it is.
            shape: The weight's shape.
        """
        self.names: Sequence[str] = [*places]
        self._shared = shared
        self._places = places
        self._shape = tuple(shape)

    @property
    def _rounds(self) -> Rounds:
        return self._shared.rounds

    def settle(self) -> None:
        """Lets all workers hand in what is late, see `SharedRounds.settle`."""
        self._shared.settle()

    def waiting(self) -> Parts:
        """The sums that the next step takes."""
        carried = self._rounds.carried
        if not carried:
            return {}
        found = {name: carried[place.number] for name, place in self._places.items()}
        parts = {name: self._part(name, one) for name, one in found.items() if one is not None}
        return parts if is_late(parts) else {}

    def _part(self, name: str, summed: Any) -> np.ndarray:
        part, elements = np.asarray(summed), self._places[name].elements
        if name in LISTS:
            return part
        return (part if elements is None else part[elements]).reshape(self._shape)

    def replace(self, parts: Parts) -> None:
        """Gives the next step other sums of this weight to take, on all workers alike."""
        carried: list[Any | None] = [*self._rounds.carried] or [None] * len(self._shared.kinds)
        for name, place in self._places.items():
            dims, _ = self._shared.kinds[place.number]
            if name in LISTS:
                # A list of what is late is longer than that of any step.
                dims = dims and (None, *dims[1:])
            before = carried[place.number]
            carried[place.number] = self._replaced(before, place, dims, parts.get(name))
        self._rounds.carried = carried if any(one is not None for one in carried) else ()

    def _replaced(
        self, summed: Any | None, place: Place, dims: Dims, part: np.ndarray | None
    ) -> Any | None:
        _, number = self._shared.kinds[place.number]
        dtype = tf.as_dtype(number)
        if place.elements is not None:
            # Beside what waits of other weights; -0.0, as x + -0.0 = x for all x.
            pack = np.full([place.total], -0.0, dtype.as_numpy_dtype)
            if summed is not None:
                pack[:] = summed
            if part is not None and part.shape != self._shape:
                raise ValueError(f"{part.shape} is not {self._shape}")
            pack[place.elements] = -0.0 if part is None else part.ravel()
            return tf.constant(pack) if pack.any() else None
        if part is None:
            return None
        known = [size for size in dims or () if size is not None]
        if dims is not None and len(known) == len(dims) and math.prod(known) == part.size:
            part = part.reshape(known)
        if not tf.TensorShape(dims).is_compatible_with(part.shape):
            raise ValueError(f"{part.shape} is not {dims}")
        return tf.cast(tf.constant(part), dtype)


def places_of(
    step: Step, sums: StepSums, gradients: Sequence[tuple[str, ...]]
) -> dict[str, dict[str, Place]]:
    """Of weights by key, where their gradients are in a round, by the name of the part.

    Args:
        step: The step.
        sums: Its sums.
        gradients: What carries the dense ones, in the order of the round; lists come after them.
    """
    found: dict[str, dict[str, Place]] = collections.defaultdict(dict)
    numbers = {carriers: number for number, carriers in enumerate(gradients)}
    # A gradient has as many elements as its weight, also where the graph does not say so.
    weights = {one.key: key for key, own in sums.gradients.items() for one in own}
    variables = step.captured.variables
    packs: dict[tuple[str, ...], dict[int, int]] = collections.defaultdict(dict)
    for one in step.reductions:
        shape = variables[weights[one.key]].shape if one.key in weights else (one.size or 0,)
        packs[one.carriers][one.key] = math.prod(shape)
    for key, own in sums.gradients.items():
        for which, one in enumerate(own):
            number, pack = numbers[one.carriers], packs[one.carriers]
            found[key][dense(which)] = Place(number)
            if len(pack) > 1:
                ends = dict(zip(pack, itertools.accumulate(pack.values()), strict=True))
                end = ends[one.key]
                elements = slice(end - pack[one.key], end)
                found[key][dense(which)] = Place(number, elements, sum(pack.values()))
    for which, entries in enumerate(sums.entries):
        if entries.key is not None:
            first = len(gradients) + len(LISTS) * which
            places = map(Place, itertools.count(first))
            found[entries.key].update(zip(LISTS, places, strict=False))
    return found
