"""The catalogue of everything that keeps an update as it was.

A refusal is made where the reason is found, `refusals.Rules.NO_RULE.at(op.name, op_type=op.type)`,
and decided upon by its kind, never by its words. Text, JSON, the inspection's advice and
docs/refusals.md are all made from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_wu_shard.refusals.kind import Detail, Kind, Refusal
from tf_wu_shard.refusals.plan import SMALL, Compiling, Plan, Storage
from tf_wu_shard.refusals.step import Branches, Calls, Inspection, Replicas, Topology
from tf_wu_shard.refusals.update import Matrices, Rows, Rules, Updates

__all__ = [
    "GROUPS",
    "KINDS",
    "SMALL",
    "Branches",
    "Calls",
    "Compiling",
    "Detail",
    "Inspection",
    "Kind",
    "Matrices",
    "Plan",
    "Refusal",
    "Replicas",
    "Rows",
    "Rules",
    "Storage",
    "Topology",
    "Updates",
    "refusal_from",
]

# In the order in which a step meets them.
GROUPS: tuple[type[Kind], ...] = (
    *(Topology, Branches, Calls, Updates, Replicas, Rules, Rows, Matrices, Plan, Storage),
    *(Compiling, Inspection),
)

# Every kind, by its name in reports.
KINDS: dict[str, Kind] = {kind.key: kind for group in GROUPS for kind in group}


def refusal_from(data: Mapping[str, Any]) -> Refusal:
    """Reads a refusal written by `Refusal.to_data`.

    Raises:
        ValueError: If it is of a kind that the catalogue does not have.
    """
    if data["kind"] not in KINDS:
        raise ValueError(f"there is no refusal of the kind {data['kind']!r}")
    detail = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data["detail"].items()
    }
    besides = tuple(map(refusal_from, data["besides"]))
    return Refusal(KINDS[data["kind"]], data["where"], tuple(detail.items()), besides)
