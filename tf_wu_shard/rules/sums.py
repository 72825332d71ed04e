"""Ops that sum over elements of several shards: sums, means and norms, and in the same way maxima.

With x in shards, f(x) = after(sum over all elements of before(x)), the sum over the elements is the
sum over the replicas of the sums over their shards, and what is done after it is done once.
Rounding differs, as any other order of summing makes it differ. A maximum, a minimum, an "all" and
an "any" (the minimum and the maximum of truth values) are the same with another addition, which
does not round: a NaN stays one, and of 0 and -0, which are equal, either may be the result.

What is to be proved of each: over whatever axes, the replicas' parts combine to its result exactly
where the numbers are such that no sum is rounded, whatever the padding holds. A product is none of
them: where its terms cannot be added up, another order may overflow.
"""

from __future__ import annotations

import dataclasses

from tf_wu_shard.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT32
from tf_wu_shard.placement import Combine
from tf_wu_shard.rules import registry


@dataclasses.dataclass(frozen=True)
class SumRule:
    """How a reduction is made of a sum.

    Attributes:
        combine: What the addition is.
        squares: Whether the elements are squared before.
        mean: Whether the sum is divided by the number of its terms.
        half: Whether it is halved.
        root: Whether its square root is taken.
    """

    combine: Combine = Combine.SUM
    squares: bool = False
    mean: bool = False
    half: bool = False
    root: bool = False


SUMS: dict[str, SumRule] = {
    "Sum": SumRule(),
    "Mean": SumRule(mean=True),
    "L2Loss": SumRule(squares=True, half=True),
    "EuclideanNorm": SumRule(squares=True, root=True),
    "Max": SumRule(Combine.MAX),
    "Min": SumRule(Combine.MIN),
    "Any": SumRule(Combine.MAX),
    "All": SumRule(Combine.MIN),
}

for _op_type, _rule in SUMS.items():
    registry.register(registry.Family.SUM, registry.combined(_rule.combine), _op_type)

# Element types whose parts all dialects can combine. Truth values travel as 0 and 1.
COMBINED_DTYPES: dict[Combine, frozenset[int]] = {
    Combine.SUM: frozenset({BFLOAT16, FLOAT16, FLOAT32, FLOAT64}),
    Combine.MAX: frozenset({BFLOAT16, FLOAT16, FLOAT32, INT32, BOOL}),
    Combine.MIN: frozenset({BFLOAT16, FLOAT16, FLOAT32, INT32, BOOL}),
}


def kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that is left of `shape` without `axes`."""
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)
