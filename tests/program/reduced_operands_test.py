"""Branches that a reduced gradient reaches are found, through arithmetic and variables."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.program.prepare import sums
from tf_wu_shard.program.reduced_operands import branches_with_reduced_operands

STEP = """
p = Placeholder() {T=10 dtype=10} []
x = Placeholder() [4]
sum = CrossReplicaSum(x) [4]
twice = Mul(sum, sum) [4]
one = Square(sum) [1]
norm = L2Loss(sum) []
put = AssignAddVariableOp(m0, twice)
later = ReadVariableOp(m0) [4] ^put
other = ReadVariableOp(v0) [4]
"""


def found(branch: str) -> int:
    view = view_of(STEP + branch, replicas=1, variables={"m": (4,), "v": (4,)})
    return len(branches_with_reduced_operands(view, "", sums(view)))


@pytest.mark.parametrize("operand", ["sum", "twice", "later"])
def test_a_branch_that_is_handed_the_gradient_or_what_becomes_of_it_is_found(operand: str) -> None:
    assert found(f"b = If(p, {operand}) {{then_branch=&f else_branch=&f}} [4]") == 1


@pytest.mark.parametrize("operand", ["x", "other", "norm"])
def test_one_that_is_handed_something_else_or_a_single_number_is_not(operand: str) -> None:
    assert found(f"b = If(p, {operand}) {{then_branch=&f else_branch=&f}} [4]") == 0


def test_what_a_branch_depends_on_is_nothing_that_it_is_handed() -> None:
    text = "q = Greater(sum, x) [4]\nb = If(q, other) {then_branch=&f else_branch=&f} [4]"
    assert found(text) == 0


def test_what_comes_out_of_a_branch_may_enter_the_next() -> None:
    first = "b = If(p, sum) {then_branch=&f else_branch=&f} [4]\n"
    assert found(first + "c = If(p, b) {then_branch=&f else_branch=&f} [4]") == 2
