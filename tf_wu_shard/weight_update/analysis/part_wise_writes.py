"""Why an update with a branch that works on its variables part by part cannot be shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import Access
from tf_wu_shard.step.variable_values import VariableValues

# The values of each variable of an update, by its key and then by replica.
Touching = Mapping[str, Sequence[VariableValues]]


def part_wise_with_others(view: GraphView, touching: Touching) -> Refusal | None:
    """Why the branches that work on the variables part by part need others as well, or None.

    Args:
        view: The graph.
        touching: The values of each variable of an update.
    """
    for variable, per_replica in touching.items():
        for access in (write for values in per_replica for write in values.writes):
            if access.access is Access.PART_WISE:
                others = view.part_wise[access.op.name][variable] - touching.keys()
                if others:
                    return refusals.Updates.BRANCH_TAKES_MORE.at(
                        access.op.name, op_type=access.op.type, variable=min(others)
                    )
    return None


def refuse_part_wise(touching: Touching) -> Refusal | None:
    """Why an update that works on more than parts at a time is not done, or None.

    Args:
        touching: The values of each of its variables.
    """
    for access in (w for replicas in touching.values() for own in replicas for w in own.writes):
        if access.access is Access.PART_WISE:
            return refusals.Updates.BRANCH_WORKS_ON_IT.at(access.op.name, op_type=access.op.type)
    return None
