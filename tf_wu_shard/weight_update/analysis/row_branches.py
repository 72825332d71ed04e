"""Conditions between two functions on rows of a table: which of them each shard can call by itself.

Keras divides a sparse gradient by a table in this form: where no element of the table is zero or
NaN, the rows that the entries name are divided; else rows are added for those that are. The first
is done on each shard; the second looks at all entries at once (a repeated entry moves others), so
it has to be done on the whole, as it stands.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.function_body import ARGUMENT, function_view
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Cut, Partial, Placement, Replicated, RowPlacement, What
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.elementwise import own_rows
from tf_wu_shard.rules.operation import Operation, OwnRows
from tf_wu_shard.rules.registry import Family, family_of, operation_of
from tf_wu_shard.rules.sparse import SAME, SHAPE
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.weight_update.analysis.types import RowBranch

_FUNCTIONS = ("then_branch", "else_branch")
_RETURNED = (What.ENTRIES, What.ROWS, What.TABLE_SHAPE)
_TAKEN = (*_RETURNED, What.TABLE, What.NUM_ROWS)


def branch_on_rows(
    view: GraphView, op: Op, operands: Sequence[RowPlacement | None], table: tuple[int, ...]
) -> RowBranch | Refusal:
    """How the branches of a condition are done on rows.

    Args:
        view: The graph.
        op: The condition, of type `rules.sparse.BRANCH`.
        operands: Where its operands lie.
        table: The shape of the table.

    Returns:
        How, or why neither branch can be done on rows.
    """
    if operands[0] is not None:
        return refusals.Rows.CONDITION_OF_SHARD.at(op.name)
    taken = [_as_part(view, v, o, table) for v, o in zip(op.inputs[1:], operands[1:], strict=True)]
    found = {name: _results(view, op, name, taken) for name in _FUNCTIONS}
    local = [name for name, results in found.items() if not isinstance(results, Refusal)]
    if not local:
        refusal = found["else_branch"]
        assert isinstance(refusal, Refusal), "no branch is local"
        return refusal
    results = found[local[0]]
    assert not isinstance(results, Refusal), "it is local"
    if len(local) == 2 and found["then_branch"] == found["else_branch"]:
        return RowBranch(local[0], "", tuple(taken), results)
    # Only the numbers of their rows distinguish entries, and these stay what they are.
    wrong = [p for p in results if p.what not in _RETURNED]
    if wrong or [p.what for p in results].count(What.ROWS) != 1:
        return refusals.Rows.NO_LIST_RETURNED.at(op.name)
    if any(p is not None and p.what not in _TAKEN for p in taken):
        return refusals.Rows.COUNTS_ENTRIES.at(op.name)
    lists = {p.entries for p in (*taken, *results) if p is not None and p.entries}
    if len(lists) != 1:
        return refusals.Rows.SEVERAL_LISTS.at(op.name)
    whole = next(name for name in _FUNCTIONS if name != local[0])
    renamed = tuple(dataclasses.replace(p, entries=op.name if p.entries else "") for p in results)
    return RowBranch(local[0], whole, tuple(taken), renamed)


def depending(view: GraphView, op: Op, slot: int) -> set[int]:
    """The numbers of a condition's results that depend on one of its operands, in any branch."""
    found: set[int] = set()
    for attribute in _FUNCTIONS:
        name = op.attribute(attribute).func.name
        body = function_view(view, name, op.inputs[1:])
        if body is None or slot == 0:
            return set(range(len(view.results(op.name))))
        argument = [one for one in body if one.type == ARGUMENT][slot - 1]
        reached = {argument.name}
        for inner in body:
            if not reached.isdisjoint(value.op for value in inner.inputs):
                reached.add(inner.name)
        found |= {i for i, value in enumerate(body.outputs) if value.op in reached}
    return found


def _as_part(
    view: GraphView, value: Value, placement: RowPlacement | None, table: tuple[int, ...]
) -> RowPlacement | None:
    """An operand as the branches take it: a table, or its shape, that is outside is one as well."""
    if placement is not None:
        return placement
    if view.shape(value) == table and math.prod(table) > 1:
        return RowPlacement(What.TABLE, shape=table)
    return RowPlacement(What.TABLE_SHAPE) if is_shape(view, value, table) else None


def is_shape(view: GraphView, value: Value, table: tuple[int, ...]) -> bool:
    """Whether a value is the table's shape, known when the step is traced."""
    op = view.source(value)
    if op.type == SHAPE:
        return view.shape(op.inputs[0]) == table
    return view.integers(Value(op.name)) == table


def lying(view: GraphView, op: Op, operands: Sequence[RowPlacement | None]) -> registry.Operands:
    """Where the operands of an op lie, those outside with their shapes; None of an unknown one."""
    found: list[Placement | None] = [*operands]
    for number, value in enumerate(op.inputs):
        shape = view.shape(value) if operands[number] is None else None
        found[number] = operands[number] if shape is None else Replicated(shape)
    return tuple(found)


def _results(
    view: GraphView, op: Op, attribute: str, taken: Sequence[RowPlacement | None]
) -> tuple[RowPlacement, ...] | Refusal:
    """Where the results of one branch lie, if a shard can call its function as it stands."""
    body = function_view(view, op.attribute(attribute).func.name, op.inputs[1:])
    if body is None:
        return refusals.Rows.BRANCH_UNKNOWN.at(op.name)
    arguments = [Value(one.name) for one in body if one.type == ARGUMENT]
    placements = {v: own for v, own in zip(arguments, taken, strict=True) if own is not None}
    for inner in body:
        if inner.type == ARGUMENT:
            continue
        if body.is_stateful(inner.type) or inner.type == READ:
            return refusals.Rows.BRANCH_HAS_EFFECTS.at(op.name, op_type=inner.type)
        operands = [placements.get(value) for value in inner.inputs]
        if all(own is None for own in operands):
            continue
        if inner.type in SAME:
            for i, own in enumerate(operands):
                if own is not None:
                    placements[Value(inner.name, i)] = own
            continue
        results = _as_it_stands(operation_of(body, inner), lying(body, inner, operands))
        if isinstance(results, Refusal):
            return dataclasses.replace(results, where=op.name)
        placements |= {Value(inner.name, i): own for i, own in enumerate(results)}
    found = [placements.get(value) for value in body.outputs]
    known = tuple(own for own in found if own is not None)
    if len(known) != len(found):
        return refusals.Rows.BRANCH_RESULT_OUTSIDE.at(op.name)
    return known


def _as_it_stands(op: Operation, operands: registry.Operands) -> tuple[RowPlacement, ...] | Refusal:
    """Where the results of an op lie that a shard calls with its own operands and no others."""
    outcome = registry.propagate(op, operands, Cut.ROWS)
    if isinstance(outcome, Refusal):
        return outcome
    if any(isinstance(result, Partial) for result in outcome):
        return refusals.Rows.SUM_IN_BRANCH.at(op.name)
    if family_of(op.type) is Family.ELEMENTWISE and own_rows(operands, outcome):
        return refusals.Rows.ALL_ROWS_IN_BRANCH.at(op.name)
    local = registry.localize(op, operands)
    # What it gets in the function in the place of a constant of the shard's may be the table's.
    constants = enumerate(local.operands if local is not None else ())
    needed = {number for number, given in constants if isinstance(given, OwnRows)}
    if needed - {n for n, operand in enumerate(operands) if isinstance(operand, RowPlacement)}:
        return registry.no_rule_on_rows(op)
    return tuple(result for result in outcome if isinstance(result, RowPlacement))
