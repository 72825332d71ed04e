"""Ops that sum over elements of several shards: sums, means and norms, and in the same way maxima.

With x in shards, f(x) = after(sum over all elements of before(x)), the sum over the elements is the
sum over the replicas of the sums over their shards, and what is done after it is done once.
Rounding differs, as any other order of summing makes it differ. A maximum, a minimum, an "all" and
an "any" (the minimum and the maximum of truth values) are the same with another addition, which
does not round: a NaN stays one, and of 0 and -0, which are equal, either may be the result.

What is to be proved of each: over whatever axes, the replicas' parts combine to its result exactly
where the numbers are such that no sum is rounded, whatever the padding holds. A product is none of
them: where its terms cannot be added up, another order may overflow.

Of a table cut at rows, a sum inside of each row is the shard's own; so is none of entries, of which
not even the number is known when the step is traced, and no mean is taken.
"""

from __future__ import annotations

import dataclasses

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, dtype_name
from tf_wu_shard.placement import Combine, Partial, Placement, RowPlacement, Sharded, What
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.operation import Operation
from tf_wu_shard.rules.registry import Family, Operands, Outcome, Rule


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

# Element types whose parts all dialects can combine. Truth values travel as 0 and 1.
COMBINED_DTYPES: dict[Combine, frozenset[int]] = {
    Combine.SUM: frozenset({BFLOAT16, FLOAT16, FLOAT32, FLOAT64}),
    Combine.MAX: frozenset({BFLOAT16, FLOAT16, FLOAT32, INT32, BOOL}),
    Combine.MIN: frozenset({BFLOAT16, FLOAT16, FLOAT32, INT32, BOOL}),
}


def kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that is left of `shape` without `axes`."""
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _over_elements(op: Operation, operands: tuple[Placement, ...]) -> Outcome:
    if op.shape is None:
        return refusals.Rules.RESULT_SHAPE_UNKNOWN.at(op.name)
    if any(isinstance(operand, Sharded) for operand in operands[1:]):
        return refusals.Rules.SHARDED_AXES.at(op.name)
    combine, shape = SUMS[op.type].combine, operands[0].shape
    axes = _axes(op, shape)
    if axes is None:
        return refusals.Rules.AXES_UNKNOWN.at(op.name)
    if op.dtype not in COMBINED_DTYPES[combine]:
        return refusals.Rules.TYPE_NOT_SUMMED.at(op.name, dtype=dtype_name(op.dtype))
    return (Partial(op.shape, combine, shape, axes, op.dtype),)


def _over_rows(op: Operation, operands: Operands) -> Outcome:
    first, *others = operands
    if not isinstance(first, RowPlacement) or any(isinstance(o, RowPlacement) for o in others):
        return registry.no_rule_on_rows(op)
    if first.what not in (What.TABLE, What.ENTRIES):
        return refusals.Rows.SUMS_ROW_NUMBERS.at(op.name, what=first.what.value)
    of_table, rule = first.what is What.TABLE, SUMS[op.type]
    shape = first.shape if of_table else (-1, *first.shape)
    axes = _axes(op, shape)
    if axes is None:
        return refusals.Rows.AXES_UNKNOWN_ON_ROWS.at(op.name)
    result = kept_shape(shape, axes)
    if op.inputs[1:] and op.attribute("keep_dims").b:
        result = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    if 0 not in axes:
        if of_table:
            return (RowPlacement(What.TABLE, shape=result),)
        return refusals.Rows.SUMS_EACH_ENTRY.at(op.name)
    if rule.mean and not of_table:
        return refusals.Rows.MEAN_OF_ENTRIES.at(op.name)
    if op.dtype not in COMBINED_DTYPES[rule.combine]:
        return refusals.Rows.TYPE_NOT_SUMMED_ON_ROWS.at(op.name, dtype=dtype_name(op.dtype))
    return (Partial(result, rule.combine, shape, axes, op.dtype),)


def _axes(op: Operation, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of a shape that an op sums over, from the front; those of its second operand."""
    # A scalar has no axes, whatever computes them.
    if not op.inputs[1:] or not shape:
        return tuple(range(len(shape)))
    axes = op.constants.get(1)
    return None if axes is None else tuple(sorted({axis % len(shape) for axis in axes}))


registry.register(Rule(Family.SUM, _over_elements, _over_rows, constants=(1,)), *SUMS)
