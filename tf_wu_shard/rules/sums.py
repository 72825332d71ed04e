"""Ops that sum over elements of several shards: sums, means and norms.

With x in shards, f(x) = after(sum over all elements of before(x)), the sum over the elements is the
sum over the replicas of the sums over their shards, and what is done after it is done once.
Rounding differs, as any other order of summing makes it differ.

What is to be proved of each: over whatever axes, the replicas' parts add up to its result exactly
where the numbers are such that no sum is rounded, whatever the padding holds.
"""

from __future__ import annotations

import dataclasses

from tf_wu_shard.rules import registry


@dataclasses.dataclass(frozen=True)
class SumRule:
    """How a reduction is made of a sum.

    Attributes:
        squares: Whether the elements are squared before.
        mean: Whether the sum is divided by the number of its terms.
        half: Whether it is halved.
        root: Whether its square root is taken.
    """

    squares: bool = False
    mean: bool = False
    half: bool = False
    root: bool = False


SUMS: dict[str, SumRule] = {
    "Sum": SumRule(),
    "Mean": SumRule(mean=True),
    "L2Loss": SumRule(squares=True, half=True),
    "EuclideanNorm": SumRule(squares=True, root=True),
}

registry.register(registry.Family.SUM, registry.summed, *SUMS)


def kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that is left of `shape` without `axes`."""
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)
