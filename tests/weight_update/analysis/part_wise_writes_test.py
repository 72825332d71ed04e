"""Branches that work on parts of variables are done where they need no other variables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.graph.text_graph import view_of
from tf_wu_shard.rules.variables import Access
from tf_wu_shard.step.accesses import VariableAccess
from tf_wu_shard.weight_update.analysis.part_wise_writes import (
    part_wise_with_others,
    refuse_part_wise,
)

GRAPH = """
c = Placeholder()
x = Placeholder()
branch = If(c, w0, m0) [] @d0
step = AssignVariableOp(w0, x) @d0
"""
VIEW = view_of(GRAPH, variables={"w": (4,), "m": (4,)}, replicas=1)


def touching(*accesses: Access, variables: tuple[str, ...] = ("w",)) -> Any:
    ops = {Access.PART_WISE: VIEW.ops["branch"]}
    writes = [VariableAccess(ops.get(a, VIEW.ops["step"]), a) for a in accesses if not a.is_read]
    return {variable: [SimpleNamespace(writes=writes)] for variable in variables}


def test_a_branch_needs_no_more_than_the_update_has() -> None:
    view: Any = SimpleNamespace(part_wise={"branch": {"w": {"w", "m"}}})
    refusal = part_wise_with_others(view, touching(Access.PART_WISE))
    assert refusal is not None and refusal.where == "branch"
    assert "If" in refusal.reason and "m" in refusal.reason
    view = SimpleNamespace(part_wise={"branch": {"w": {"w", "m"}, "m": {"w", "m"}}})
    assert part_wise_with_others(view, touching(Access.PART_WISE, variables=("w", "m"))) is None
    assert part_wise_with_others(view, touching(Access.WRITE)) is None


def test_an_update_on_more_than_parts_refuses_such_a_branch() -> None:
    refusal = refuse_part_wise(touching(Access.READ, Access.PART_WISE))
    assert refusal is not None and refusal.where == "branch"
    assert refuse_part_wise(touching(Access.READ, Access.WRITE)) is None
