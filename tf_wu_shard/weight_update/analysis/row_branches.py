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
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.sparse import SAME
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.weight_update.analysis.row_placement import RowBranch, RowPlacement, What
from tf_wu_shard.weight_update.analysis.row_rules import RowRules

_FUNCTIONS = ("then_branch", "else_branch")
_RETURNED = (What.ENTRIES, What.ROWS, What.TABLE_SHAPE)
_TAKEN = (*_RETURNED, What.TABLE, What.NUM_ROWS)


def branch_on_rows(
    view: GraphView, op: Op, operands: Sequence[RowPlacement | None], rules: RowRules
) -> RowBranch | Refusal:
    """How the branches of a condition are done on rows.

    Args:
        view: The graph.
        op: The condition, of type `rules.sparse.BRANCH`.
        operands: Where its operands lie.
        rules: The rules in that graph.

    Returns:
        How, or why neither branch can be done on rows.
    """
    if operands[0] is not None:
        return refusals.Rows.CONDITION_OF_SHARD.at(op.name)
    taken = [_as_part(view, v, o, rules) for v, o in zip(op.inputs[1:], operands[1:], strict=True)]
    found = {name: _results(view, op, name, taken, rules) for name in _FUNCTIONS}
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
    renamed = tuple(
        RowPlacement(p.what, op.name if p.entries else "", shape=p.shape) for p in results
    )
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
    view: GraphView, value: Value, placement: RowPlacement | None, rules: RowRules
) -> RowPlacement | None:
    """An operand as the branches take it: a table, or its shape, that is outside is one as well."""
    if placement is not None:
        return placement
    shape = view.shape(value)
    if shape == rules.table and math.prod(rules.table) > 1:
        return RowPlacement(What.TABLE, shape=rules.table)
    return RowPlacement(What.TABLE_SHAPE) if rules.is_shape(value) else None


def _results(
    view: GraphView, op: Op, attribute: str, taken: Sequence[RowPlacement | None], outside: RowRules
) -> tuple[RowPlacement, ...] | Refusal:
    """Where the results of one branch lie, if a shard can call its function as it stands."""
    body = function_view(view, op.attribute(attribute).func.name, op.inputs[1:])
    if body is None:
        return refusals.Rows.BRANCH_UNKNOWN.at(op.name)
    arguments = [Value(one.name) for one in body if one.type == ARGUMENT]
    placements = {v: own for v, own in zip(arguments, taken, strict=True) if own is not None}
    rules = RowRules(body, outside.table, placements, inside=True)
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
        propagated = rules.propagate(inner, operands)
        if isinstance(propagated, Refusal):
            return dataclasses.replace(propagated, where=op.name)
        for i, own in enumerate(propagated.results):
            placements[Value(inner.name, i)] = own
    found = [placements.get(value) for value in body.outputs]
    known = tuple(own for own in found if own is not None)
    if len(known) != len(found):
        return refusals.Rows.BRANCH_RESULT_OUTSIDE.at(op.name)
    return known
