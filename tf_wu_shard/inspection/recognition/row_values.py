"""What ops on rows of a table compute of sums of products, entry by entry.

An op of an update that a sparse gradient feeds does to the rows which the entries name what one on
tables does to all. So a sum over the entries of each row is taken for the entries, a look-up for
the table, and of a condition between two functions the one that is done on rows counts: repeated
rows aside, the other yields the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_wu_shard.graph.function_body import ARGUMENT, function_view
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.recognition.algebra import Algebra, Sum
from tf_wu_shard.inspection.recognition.value_rules import RULES
from tf_wu_shard.rules.sparse import BRANCH, LOOK_UP, SAME, SEGMENT_SUM
from tf_wu_shard.weight_update.analysis.types import BodyOp, WeightUpdate

# Keep what their first operand holds.
ENTRY_BY_ENTRY = frozenset({SEGMENT_SUM, LOOK_UP})

# How a write of some rows combines what it writes with what the variable holds.
COMBINED: Mapping[str, str | None] = {
    "ResourceScatterAdd": "Add",
    "ResourceScatterSub": "Sub",
    "ResourceScatterUpdate": None,
}


def row_ops(update: WeightUpdate) -> dict[str, BodyOp]:
    """The ops of an update that are on rows of a table and no writes, by name on replica 0."""
    return {
        part.ops[0]: part
        for part in update.body
        if part.type in ENTRY_BY_ENTRY or (part.type == BRANCH and part.branch is not None)
    }


def branch_values(
    view: GraphView, op: Op, local: str, operands: Sequence[Sum | None], algebra: Algebra
) -> list[Sum | None]:
    """What a condition between two functions on rows yields.

    Args:
        view: The graph.
        op: The condition.
        local: The attribute that names the function which is done on rows.
        operands: What the condition is given behind what it depends on; None of what is not
            floating.
        algebra: Of these sums.

    Returns:
        Its results; None of those of which nothing is known.
    """
    body = function_view(view, op.attribute(local).func.name, op.inputs[1:])
    if body is None:
        return [None] * len(view.results(op.name))
    given = iter(operands)
    found: dict[Value, Sum | None] = {}
    for inner in body:
        first = Value(inner.name)
        if inner.type == ARGUMENT:
            found[first] = next(given)
        elif inner.type in SAME:
            found |= {Value(inner.name, i): found.get(v) for i, v in enumerate(inner.inputs)}
        elif inner.type in ENTRY_BY_ENTRY:
            found[first] = found.get(inner.inputs[0])
        elif inner.type == "Const":
            number = body.floating_scalar(first)
            found[first] = None if number is None else algebra.number(number)
        elif inner.type in RULES:
            known = [o for v in inner.inputs if (o := found.get(v)) is not None]
            whole = len(known) == len(inner.inputs)
            found[first] = RULES[inner.type](algebra, known) if whole else None
    return [found.get(value) for value in body.outputs]
