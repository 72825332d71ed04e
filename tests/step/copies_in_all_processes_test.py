"""Copies agree within a process, op by op, and between processes by what enters them."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.copies_in_all_processes import CopiesInAllProcesses
from tf_wu_shard.step.single_program import SingleProgram

# Two copies of four; `sum#` is summed over all of them.
COPIES = """
everyone = Const() {value=1x4}
rate = Const() {value=1}
other = Const() {value=2}
own# = Placeholder() [4] @d#
sum# = CollectiveReduceV2(own#, everyone, rate) [4] @d#
drawn = RandomUniform(rate) [4]
"""


def refusal(step: str) -> str | None:
    """Why the writes of both copies are not known to be the same in all processes."""
    view = view_of(COPIES + step, variables={"w": (4,)}, controls=("put0", "put1"))
    results = {Value(f"sum{replica}"): (0, replica) for replica in (0, 1)}
    matcher = CopiesInAllProcesses(view, results, SingleProgram(view, results, 4))
    found = matcher.match(1, "put0", "put1")
    return None if found is None else str(found)


PUT = "put# = AssignSubVariableOp(w#, step#) @d#\n"


def test_what_is_made_of_sums_agrees_everywhere() -> None:
    assert refusal("step# = Mul(sum#, rate) [4] @d#\n" + PUT) is None


@pytest.mark.parametrize(
    ("step", "why"),
    [
        # Within the process, one copy does something else.
        ("step0 = Mul(sum0, rate) [4] @d0\nstep1 = Neg(sum1) [4] @d1\n", "Neg"),
        ("step0 = Mul(sum0, rate) [4] @d0\nstep1 = Mul(sum1, other) [4] @d1\n", "other"),
        # Both copies share what each process draws for itself.
        ("step# = Mul(sum#, drawn) [4] @d#\n", "RandomUniform"),
    ],
)
def test_what_differs_within_or_between_processes_is_refused(step: str, why: str) -> None:
    assert why in (refusal(step + PUT) or "")
