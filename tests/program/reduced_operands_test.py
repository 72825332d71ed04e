"""Branches that a reduced gradient reaches are found, through arithmetic and variables."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.calls import BRANCHES, PLAIN_CALLS
from tf_wu_shard.program.prepare import sums
from tf_wu_shard.program.reduced_operands import calling_with_reduced_operands

STEP = """
p = Placeholder() {T=10 dtype=10} []
x = Placeholder() [4]
sum = CrossReplicaSum(x) [4]
twice = Mul(sum, sum) [4]
one = Square(sum) [1]
norm = L2Loss(sum) []
y = Placeholder() []
bias = CrossReplicaSum(y) []
square = Square(bias) []
put = AssignAddVariableOp(m0, twice)
later = ReadVariableOp(m0) [4] ^put
other = ReadVariableOp(v0) [4]
"""


def found(branch: str, calls: frozenset[str] = BRANCHES) -> int:
    view = view_of(STEP + branch, replicas=1, variables={"m": (4,), "v": (4,)})
    return len(calling_with_reduced_operands(view, "", sums(view), calls))


@pytest.mark.parametrize("operand", ["sum", "twice", "later"])
def test_a_branch_that_is_handed_the_gradient_or_what_becomes_of_it_is_found(operand: str) -> None:
    assert found(f"b = If(p, {operand}) {{then_branch=&f else_branch=&f}} [4]") == 1


@pytest.mark.parametrize("operand", ["x", "other", "norm", "square"])
def test_one_that_is_handed_something_else_or_a_single_number_is_not(operand: str) -> None:
    assert found(f"b = If(p, {operand}) {{then_branch=&f else_branch=&f}} [4]") == 0


def test_what_a_branch_depends_on_is_nothing_that_it_is_handed() -> None:
    text = "q = Greater(sum, x) [4]\nb = If(q, other) {then_branch=&f else_branch=&f} [4]"
    assert found(text) == 0


def test_variables_that_a_fused_update_writes_carry_the_gradient_on() -> None:
    text = """
    rate = Const() []
    fused = ResourceApplyMomentum(v0, m0, rate, sum, rate) ^other
    after = ReadVariableOp(v0) [4] ^fused
    """
    branch = "b = If(p, after) {then_branch=&f else_branch=&f} [4]"
    assert found(text + branch) == 1


def test_what_comes_out_of_a_branch_may_enter_the_next() -> None:
    first = "b = If(p, sum) {then_branch=&f else_branch=&f} [4]\n"
    assert found(first + "c = If(p, b) {then_branch=&f else_branch=&f} [4]") == 2


def test_a_call_is_found_where_calls_are_asked_for_by_its_first_operand_too() -> None:
    text = "c = StatefulPartitionedCall(sum, v0) {f=&f} [4]\n"
    assert found(text) == 0 and found(text, PLAIN_CALLS) == 1
    assert found("c = StatefulPartitionedCall(other, v0) {f=&f} [4]", PLAIN_CALLS) == 0
    branch = "b = If(p, sum) {then_branch=&f else_branch=&f} [4]\n"
    assert found(f"{branch}c = StatefulPartitionedCall(b, v0) {{f=&f}} [4]", PLAIN_CALLS) == 1
