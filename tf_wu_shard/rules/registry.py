"""What each op does to a cut value: the one table of all ops that are no writes of variables.

An entry answers "if the operands lie so, where do the results lie?", for values cut into elements
and for tables cut at whole rows, and says what a shard computes then. It sees the op with its
attributes and constants, and nothing of the graph around it; it is pure and is proved by running
ops whole and in shards. An op that has no entry is a `Refusal`, never a guess.

A cut into elements gives each shard some of the row-major elements. A value may be relabelled with
another shape of the same size without moving (`Reshape`); an op is local exactly when element `k`
of its result needs only elements `k` of its operands and what every replica holds whole; and a sum
over elements of several shards is a sum of sums, as a maximum is one of maxima.

Cut at rows, every value is a table, belongs to the entries of the gradient (each shard has those
that name its rows, in their order), or is outside and the same on every replica. An op is local
where each row of its result needs that row of its operands and the entries that name it, alone; a
sum over rows or entries is the sum of what all shards add to it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import TypeAlias

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Cut, Placement
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.operation import LocalOp, Operation


class Family(enum.Enum):
    """How an op on elements is localized."""

    ELEMENTWISE = "the same op on the shard"
    RELABEL = "nothing: the result is the operand under another shape or name"
    SUM = "the same over the shard's elements, then over what the replicas found"


# Where the operands lie; None of one outside whose shape is not known when the step is traced.
Operands: TypeAlias = tuple[Placement | None, ...]

Outcome: TypeAlias = tuple[Placement, ...] | Refusal


@dataclasses.dataclass(frozen=True)
class Rule:
    """The entry of some op types.

    Attributes:
        family: How the op is localized on elements; None of an op that is local on rows alone.
        elements: Where its results lie whose operands are cut into elements, all shapes known; None
            where that is not known.
        rows: The same of operands that are of a table cut at rows, or outside.
        localize: What a shard computes in its place; None for the same op.
        constants: Numbers of the operands whose elements the rule goes by.
    """

    family: Family | None = None
    elements: Callable[[Operation, tuple[Placement, ...]], Outcome] | None = None
    rows: Callable[[Operation, Operands], Outcome] | None = None
    localize: Callable[[Operation, Operands], LocalOp | None] | None = None
    constants: tuple[int, ...] = ()


_RULES: dict[str, Rule] = {}


def register(rule: Rule, *op_types: str) -> None:
    """Gives `op_types` a rule.

    Raises:
        ValueError: If an op type has a rule already.
    """
    for op_type in op_types:
        if op_type in _RULES:
            raise ValueError(f"{op_type} has a rule already")
        _RULES[op_type] = rule


def op_types(cut: Cut) -> tuple[str, ...]:
    """Every op type that has a rule for a cut."""
    return tuple(sorted(op_type for op_type, rule in _RULES.items() if _propagates(rule, cut)))


def constants_of(op_type: str) -> tuple[int, ...]:
    """Numbers of the operands whose elements the rule of an op goes by."""
    return _RULES[op_type].constants if op_type in _RULES else ()


def family_of(op_type: str) -> Family | None:
    """How `op_type` is localized on elements, or None where it has no such rule."""
    rule = _RULES.get(op_type)
    return rule.family if rule else None


def is_of_rows(op_type: str) -> bool:
    """Whether an op leads on from a sparse gradient, though no dense one passes through it."""
    return op_type in _RULES and _RULES[op_type].family is None


def operation_of(view: GraphView, op: Op) -> Operation:
    """An op of a graph as its rule sees it."""
    known = op.type in _RULES
    found = ((n, _integers(view, op.inputs[n])) for n in constants_of(op.type) if op.inputs[n:])
    return Operation(
        type=op.type,
        name=op.name,
        inputs=op.inputs,
        attributes=op.node.attr,
        constants={number: elements for number, elements in found if elements is not None},
        shape=view.shape(Value(op.name)),
        dtype=view.dtype(Value(op.name)) if known else 0,
    )


def _integers(view: GraphView, value: Value) -> tuple[int, ...] | None:
    """The elements of a constant, or of the first of the sizes of a shape that is known."""
    found, op = view.integers(value), view.producer(value)
    if found is not None or op.type != "StridedSlice" or not is_first(operation_of(view, op)):
        return found
    source = view.source(op.inputs[0])
    sizes = view.shape(source.inputs[0]) if source.type == "Shape" else None
    return (sizes or view.integers(Value(source.name)) or ())[:1] or None


def is_first(op: Operation) -> bool:
    """Whether a StridedSlice yields the first element of a vector as a scalar."""
    masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
    return (
        [op.constants.get(number) for number in (1, 2, 3)] == [(0,), (1,), (1,)]
        and op.attribute("shrink_axis_mask").i == 1
        and all(op.attribute(mask).i == 0 for mask in masks)
    )


def propagate(op: Operation, operands: Operands, cut: Cut = Cut.ELEMENTS) -> Outcome:
    """Where the results of an op lie.

    Args:
        op: The op.
        operands: Where its data operands lie; mostly at least one of them depends on the shard. A
            table may also be made of what is outside alone.
        cut: What the update is cut into.

    Returns:
        The placements of its results, or why there are none.
    """
    rule = _RULES.get(op.type, Rule())
    if cut is Cut.ROWS:
        return no_rule_on_rows(op) if rule.rows is None else rule.rows(op, operands)
    if rule.elements is None:
        return no_rule(op.type, op.name)
    known = tuple(operand for operand in operands if operand is not None)
    if len(known) < len(operands):
        return refusals.Updates.OPERAND_SHAPE_UNKNOWN.at(op.inputs[operands.index(None)].op)
    return rule.elements(op, known)


def localize(op: Operation, operands: Operands) -> LocalOp | None:
    """What a shard computes in the place of an op that has a rule; None for the same op."""
    rule = _RULES[op.type]
    return None if rule.localize is None else rule.localize(op, operands)


def no_rule(op_type: str, name: str) -> Refusal:
    """The answer about an op that has no rule on elements."""
    return refusals.Rules.NO_RULE.at(name, op_type=op_type)


def no_rule_on_rows(op: Operation) -> Refusal:
    """The answer about an op that has no rule on such operands, on rows of a table."""
    return refusals.Rows.NO_RULE_ON_ROWS.at(op.name, op_type=op.type)


def _propagates(rule: Rule, cut: Cut) -> bool:
    return (rule.elements if cut is Cut.ELEMENTS else rule.rows) is not None
