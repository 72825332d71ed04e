"""What each op does to a cut tensor: the one look-up behind every table in this folder.

`propagate` answers "if the operands lie so, where does the result lie?"; it is pure and is proved
by running ops whole and in shards. An op that no table names is a `Refusal`, never a guess.

A cut gives each shard some of the row-major elements. A value may be relabelled with another shape
of the same size without moving (`Reshape`); an op is local exactly when element `k` of its result
needs only elements `k` of its operands and what every replica holds whole; and a sum over elements
of several shards is a sum of sums, as a maximum is one of maxima.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable

from tf_wu_shard import cures
from tf_wu_shard.placement import Combine, Partial, Placement, Refusal, Replicated, Sharded


class Family(enum.Enum):
    """How an op is localized."""

    ELEMENTWISE = "the same op on the shard"
    RELABEL = "nothing: the result is the operand under another shape or name"
    SUM = "the same over the shard's elements, then over what the replicas found"


Propagate = Callable[[str, tuple[Placement, ...], tuple[int, ...] | None], Placement | Refusal]

_UNKNOWN = "the shape of its result is not known when the step is traced"

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
    found = rule[1](name, operands, result_shape)
    return dataclasses.replace(found, of_rules=True) if isinstance(found, Refusal) else found


def no_rule(op_type: str, name: str) -> Refusal:
    """What is said of an op that no table names."""
    return Refusal(name, f"no rule for {op_type}", of_rules=True, cure=cures.other_op(op_type))


def same_lanes(
    name: str, operands: tuple[Placement, ...], result_shape: tuple[int, ...] | None
) -> Placement | Refusal:
    """The rule of elementwise ops that do not broadcast: operands are scalars or of one size."""
    if result_shape is None:
        return Refusal(name, _UNKNOWN, cure=cures.FIXED_SHAPES)
    size = math.prod(result_shape)
    for operand in operands:
        operand_size = math.prod(operand.shape)
        if operand_size != size and (isinstance(operand, Sharded) or operand_size != 1):
            return Refusal(
                name,
                f"it broadcasts {list(operand.shape)} over {list(result_shape)}",
                cure=cures.OF_ONE_SHAPE,
            )
    return Sharded(result_shape)


def broadcast_lanes(
    name: str, operands: tuple[Placement, ...], result_shape: tuple[int, ...] | None
) -> Placement | Refusal:
    """The rule of elementwise ops that broadcast as NumPy does.

    Broadcasting keeps the row-major order of an operand exactly when the operand has as many
    elements as the result (shapes then differ by leading ones only). A smaller operand (a scalar, a
    norm of each row) is broadcast by whoever holds it whole, which a shard does not.
    """
    if result_shape is None:
        return Refusal(name, _UNKNOWN, cure=cures.FIXED_SHAPES)
    size = math.prod(result_shape)
    for operand in operands:
        if isinstance(operand, Sharded) and math.prod(operand.shape) != size:
            return Refusal(
                name,
                f"it broadcasts {list(operand.shape)} over {list(result_shape)}",
                cure=cures.OF_ONE_SHAPE,
            )
    return Sharded(result_shape)


def combined(combine: Combine) -> Propagate:
    """The rule of sums, maxima and minima: of a tensor in shards, every replica has a part."""

    def propagate_parts(
        name: str, operands: tuple[Placement, ...], result_shape: tuple[int, ...] | None
    ) -> Placement | Refusal:
        if result_shape is None:
            return Refusal(name, _UNKNOWN, cure=cures.FIXED_SHAPES)
        if any(isinstance(operand, Sharded) for operand in operands[1:]):
            return Refusal(
                name,
                "it takes its axes from the values of a sharded tensor",
                cure="axes that are constants",
            )
        return Partial(result_shape, combine)

    return propagate_parts


def relabelled(
    name: str, operands: tuple[Placement, ...], result_shape: tuple[int, ...] | None
) -> Placement | Refusal:
    """The rule of ops that only rename or reshape their first operand."""
    if result_shape is None:
        return Refusal(name, _UNKNOWN, cure=cures.FIXED_SHAPES)
    if any(isinstance(operand, Sharded) for operand in operands[1:]):
        return Refusal(
            name,
            "it takes a shape from the values of a sharded tensor",
            cure="a shape that is a constant",
        )
    if math.prod(operands[0].shape) != math.prod(result_shape):
        return Refusal(
            name,
            f"it makes {list(result_shape)} of {list(operands[0].shape)}",
            cure=cures.OF_ONE_SHAPE,
        )
    if isinstance(operands[0], Replicated):
        return Replicated(result_shape)
    return Sharded(result_shape)
