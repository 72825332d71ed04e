"""What is late in rounds, weight by weight, as checkpoints hold it."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.partial_sums.rounds.rounds import Rounds
from tf_wu_shard.partial_sums.rounds.shared import SharedRounds
from tf_wu_shard.partial_sums.rounds.sums import Kind
from tf_wu_shard.partial_sums.steps.sums import StepSums
from tf_wu_shard.storage.late_gradients import LISTS, Parts, dense, is_late


class InRounds:
    """Gradients of one weight that no step has taken yet, in sums that all workers have."""

    def __init__(self, shared: SharedRounds, places: Mapping[str, int]) -> None:
        """Of a weight that rounds train.

        Args:
            shared: The rounds.
            places: By the name of a part, which of the rounds' gradients it is.
        """
        self.names: Sequence[str] = [*places]
        self._shared = shared
        self._places = places

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
        found = {name: carried[place] for name, place in self._places.items()}
        parts = {name: np.asarray(one) for name, one in found.items() if one is not None}
        return parts if is_late(parts) else {}

    def replace(self, parts: Parts) -> None:
        """Gives the next step other sums to take, on all workers alike."""
        kinds = self._shared.kinds
        carried: list[Any | None] = [*self._rounds.carried] or [None] * len(kinds)
        for name, place in self._places.items():
            carried[place] = _sum(parts[name], kinds[place]) if name in parts else None
        self._rounds.carried = carried if any(one is not None for one in carried) else ()


def places_of(sums: StepSums, gradients: Sequence[tuple[str, ...]]) -> dict[str, dict[str, int]]:
    """Of weights by key, which gradients of a round are theirs, by the name of the part.

    Args:
        sums: The sums of the step.
        gradients: What carries the dense ones, in the order of the round; lists come after them.
    """
    found: dict[str, dict[str, int]] = collections.defaultdict(dict)
    places = {carriers: place for place, carriers in enumerate(gradients)}
    for key, own in sums.gradients.items():
        for number, one in enumerate(own):
            found[key][dense(number)] = places[one.carriers]
    for number, entries in enumerate(sums.entries):
        if entries.key is not None:
            first = len(gradients) + len(LISTS) * number
            found[entries.key].update(zip(LISTS, itertools.count(first), strict=False))
    return found


def _sum(part: np.ndarray, kind: Kind) -> tf.Tensor:
    dims, dtype = kind
    if not tf.TensorShape(dims).is_compatible_with(part.shape):
        raise ValueError(f"{part.shape} is not {dims}")
    return tf.cast(tf.constant(part), tf.as_dtype(dtype))
