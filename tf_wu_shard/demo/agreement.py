"""Do two runs agree? Measured against how far the baseline moves by itself.

Sharding sums the replicas' gradients in another order, and float addition is not associative, so
above two replicas two right runs differ by rounding, which training then amplifies. How far is
no matter of taste: the unsharded baseline is run a second time with nothing changed but its order
of summation, and the sharded run may differ by at most `FACTOR` times what that moves.

A difference is relative to the largest element of its tensor, and each quantity is judged by its
worst tensor: which tensor rounding hits hardest is luck, how hard it hits is not. It does not
prove anything about longer training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf_wu_shard.demo.runs import DemoError, Run, Tensors

FACTOR = 4
# Eight units in the last place of float32: where the baseline does not move at all, rounding in
# the last operations of a step still may.
FLOOR = 1e-6


@dataclasses.dataclass(frozen=True)
class Agreement:
    """One quantity of the sharded run against the unsharded one.

    Attributes:
        quantity: "losses", "weights" or "slots".
        difference: Sharded against unsharded, of the worst tensor; infinite where one is not
            finite and the other is.
        worst: That tensor.
        moved: The unsharded run against itself in another order of summation.
    """

    quantity: str
    difference: float
    worst: str
    moved: float

    @property
    def limit(self) -> float:
        """The largest difference that counts as agreement."""
        return max(FACTOR * self.moved, FLOOR) if np.isfinite(self.moved) else FLOOR

    @property
    def holds(self) -> bool:
        """Whether the runs agree in this quantity."""
        return self.difference <= self.limit


def compare(
    unsharded: tuple[Run, Tensors], reordered: tuple[Run, Tensors], sharded: tuple[Run, Tensors]
) -> tuple[Agreement, ...]:
    """Compares losses, final weights and final slots.

    Raises:
        DemoError: The runs do not have the same tensors, so nothing can be compared.
    """
    return tuple(
        _agreement(
            quantity, *(_quantity(quantity, *one) for one in (unsharded, reordered, sharded))
        )
        for quantity in ("losses", "weights", "slots")
    )


def relative_difference(expected: np.ndarray, actual: np.ndarray) -> float:
    """Returns max|actual - expected| / max|expected|; 0 if bit-equal, infinite if not finite."""
    if np.array_equal(expected, actual, equal_nan=True):
        return 0.0
    gap = np.max(np.abs(actual.astype(np.float64) - expected.astype(np.float64)))
    scale = np.max(np.abs(expected.astype(np.float64)))
    if not np.isfinite(gap) or not np.isfinite(scale) or scale == 0:
        return float("inf")
    return float(gap / scale)


def worst_difference(
    quantity: str, expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray]
) -> tuple[float, str]:
    """Compares tensors with those of the same names.

    Args:
        quantity: What they are, for the error.
        expected: By name; relative is to the largest element of these.
        actual: The same names and shapes.

    Returns:
        The largest `relative_difference` of a tensor, and that tensor's name.

    Raises:
        DemoError: The names or shapes differ, or there are none.
    """
    shapes, other_shapes = (
        {name: array.shape for name, array in one.items()} for one in (expected, actual)
    )
    if shapes != other_shapes or not shapes:
        differing = sorted(set(shapes.items()) ^ set(other_shapes.items()))
        raise DemoError(f"the runs do not have the same {quantity}: {differing or 'none at all'}")
    return max((relative_difference(expected[name], actual[name]), name) for name in expected)


def _quantity(quantity: str, run: Run, tensors: Tensors) -> Mapping[str, np.ndarray]:
    if quantity == "losses":
        return {"losses": np.array(run.losses)}
    return tensors.weights if quantity == "weights" else tensors.slots


def _agreement(
    quantity: str,
    unsharded: Mapping[str, np.ndarray],
    reordered: Mapping[str, np.ndarray],
    sharded: Mapping[str, np.ndarray],
) -> Agreement:
    difference, worst = worst_difference(quantity, unsharded, sharded)
    moved, _ = worst_difference(quantity, unsharded, reordered)
    return Agreement(quantity, difference, worst, moved)
