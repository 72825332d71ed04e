"""What each op does to a cut tensor: the one look-up behind every table in this folder.

`propagate` answers "if the operands lie so, where does the result lie?"; it is pure and is proved
by running ops whole and in shards. An op that no table names is a `Refusal`, never a guess.

A cut gives each shard some of the row-major elements. A value may be relabelled with another shape
of the same size without moving (`Reshape`); an op is local exactly when element `k` of its result
needs only elements `k` of its operands and what every replica holds whole; and a sum over elements
of several shards is a sum of sums, as a maximum is one of maxima.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

from tf_wu_shard import refusals
from tf_wu_shard.placement import Combine, Partial, Placement, Replicated, Sharded
from tf_wu_shard.refusals import Refusal


class Family(enum.Enum):
    """How an op is localized."""

    ELEMENTWISE = "the same op on the shard"
    RELABEL = "nothing: the result is the operand under another shape or name"
    SUM = "the same over the shard's elements, then over what the replicas found"


Propagate = Callable[[str, tuple[Placement, ...], tuple[int, ...] | None], Placement | Refusal]

_RULES: dict[str, tuple[Family, Propagate]] = {}


def register(family: Family, propagate: Propagate, *op_types: str) -> None:
    """Gives `op_types` a rule.

    Raises:
        ValueError: If an op type has a rule already.
    """
    for op_type in op_types:
        if op_type in _RULES:
            raise ValueError(f"{op_type} has a rule already")
        _RULES[op_type] = (family, propagate)


def op_types() -> tuple[str, ...]:
    """Every op type that has a rule."""
    return tuple(sorted(_RULES))


def family_of(op_type: str) -> Family | None:
    """How `op_type` is localized, or None where no table names it."""
    rule = _RULES.get(op_type)
    return rule[0] if rule else None


def propagate(
    op_type: str,
    name: str,
    operands: tuple[Placement, ...],
    result_shape: tuple[int, ...] | None,
) -> Placement | Refusal:
    """Where the result of an op lies.

    Args:
        op_type: The op's type.
        name: The op's name, for the refusal.
        operands: Where its data operands lie; at least one of them sharded.
        result_shape: The static logical shape of the result, if known.

    Returns:
        The placement of the result, or why there is none.
    """
    rule = _RULES.get(op_type)
    if rule is None:
        return no_rule(op_type, name)
    return rule[1](name, operands, result_shape)


def no_rule(op_type: str, name: str) -> Refusal:
    """The answer about an op that no table names."""
    return refusals.Rules.NO_RULE.at(name, op_type=op_type)


def same_lanes(
    name: str, operands: tuple[Placement, ...], result_shape: tuple[int, ...] | None
) -> Placement | Refusal:
    """The rule of elementwise ops that do not broadcast: operands are scalars or of one size."""
    if result_shape is None:
        return refusals.Rules.RESULT_SHAPE_UNKNOWN.at(name)
    size = math.prod(result_shape)
    for operand in operands:
        operand_size = math.prod(operand.shape)
        if operand_size != size and (isinstance(operand, Sharded) or operand_size != 1):
            return refusals.Rules.BROADCASTS.at(name, shape=operand.shape, result=result_shape)
    return Sharded(result_shape)


def broadcast_lanes(
    name: str, operands: tuple[Placement, ...], result_shape: tuple[int, ...] | None
) -> Placement | Refusal:
    """The rule of elementwise ops that broadcast as NumPy does.

    Broadcasting keeps the row-major order of an operand exactly when the operand has as many
    elements as the result (shapes then differ by leading ones only). A smaller operand (a scalar, a
    norm of each row) is broadcast by what holds it whole, which a shard does not.
    """
    if result_shape is None:
        return refusals.Rules.RESULT_SHAPE_UNKNOWN.at(name)
    size = math.prod(result_shape)
    for operand in operands:
        if isinstance(operand, Sharded) and math.prod(operand.shape) != size:
            return refusals.Rules.BROADCASTS.at(name, shape=operand.shape, result=result_shape)
    return Sharded(result_shape)


def combined(combine: Combine) -> Propagate:
    """The rule of sums, maxima and minima: of a tensor in shards, every replica has a part."""

    def propagate_parts(
        name: str, operands: tuple[Placement, ...], result_shape: tuple[int, ...] | None
    ) -> Placement | Refusal:
        if result_shape is None:
            return refusals.Rules.RESULT_SHAPE_UNKNOWN.at(name)
        if any(isinstance(operand, Sharded) for operand in operands[1:]):
            return refusals.Rules.SHARDED_AXES.at(name)
        return Partial(result_shape, combine)

    return propagate_parts


def relabelled(
    name: str, operands: tuple[Placement, ...], result_shape: tuple[int, ...] | None
) -> Placement | Refusal:
    """The rule of ops that only rename or reshape their first operand."""
    if result_shape is None:
        return refusals.Rules.RESULT_SHAPE_UNKNOWN.at(name)
    if any(isinstance(operand, Sharded) for operand in operands[1:]):
        return refusals.Rules.SHARDED_SHAPE.at(name)
    if math.prod(operands[0].shape) != math.prod(result_shape):
        return refusals.Rules.RESIZES.at(name, result=result_shape, shape=operands[0].shape)
    if isinstance(operands[0], Replicated):
        return Replicated(result_shape)
    return Sharded(result_shape)
