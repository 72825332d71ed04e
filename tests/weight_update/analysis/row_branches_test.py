"""A condition of an update on rows: which of its sides each shard does on its own rows."""

from __future__ import annotations

import pytest

from tests.weight_update.analysis.row_slice_test import Functions, analysis_of, body_of, refused
from tf_wu_shard.weight_update.analysis.row_body import weights_by_rows

# A condition that divides the entries by a table, or does something to all of them at once.
CONDITION = """
old# = ReadVariableOp(m#) [4,3] @d#
zero# = Equal(old#, one) {T=10} [4,3] @d#
each# = Any(zero#, one1) {T=10} [4] @d#
any# = Any(each#, axis) {T=10} [] @d#
chosen# = StatelessIf(any#, each#, values#, rows#, old#) {then_branch=&a else_branch=&b} [?] [?] @d#
put# = ResourceScatterAdd(m#, rows#, values#) @d# ^old#
step# = ResourceScatterSub(w#, chosen#:1, chosen#) @d#
"""
CONDITION = "one1 = Const() {value=1} [1]\n" + CONDITION
DIVIDED = (
    "each values rows table",
    "axis = Const() {value=0}\nown = GatherV2(table, rows, axis:output:0)\n"
    "q = RealDiv(values, own:output:0)\nsame = Identity(rows)",
    "q:output:0 same:output:0",
)
SHUFFLED = (
    "each values rows table",
    "found = Where(each)\nq = Cumsum(values, found:output:0)\nsame = Identity(rows)",
    "q:output:0 same:output:0",
)
DOUBLED = (DIVIDED[0], "q = AddV2(values, values)\nsame = Identity(rows)", DIVIDED[2])


@pytest.mark.parametrize("names", [("then_branch", "else_branch"), ("else_branch", "then_branch")])
def test_one_side_of_a_condition_is_done_on_rows(names: tuple[str, str]) -> None:
    whole, local = names
    text = CONDITION.replace("then_branch=&a else_branch=&b", f"{whole}=&a {local}=&b")
    (update,) = analysis_of(text, {"a": SHUFFLED, "b": DIVIDED}).updates
    (chosen,) = (op for op in update.body if op.branch is not None)
    assert chosen.branch is not None
    assert (chosen.branch.local, chosen.branch.whole) == (local, whole)
    # What each shard has of the results is a list of its own, of which rows may repeat.
    assert {p.entries for p in chosen.branch.results} == {"chosen0"}
    assert weights_by_rows(update) == {"w"}
    assert {op.ops[0] for op in update.body if op.sum is not None} == {"any0"}


def test_both_sides_of_a_condition_may_be_done_on_rows() -> None:
    body = body_of(CONDITION, {"a": DOUBLED, "b": DIVIDED})
    branch = body["chosen0"].branch
    assert branch is not None and branch.whole == ""


@pytest.mark.parametrize(
    ("text", "functions", "reason"),
    [
        (CONDITION, {"a": SHUFFLED, "b": SHUFFLED}, "no rule for Where on rows of a table"),
        (
            CONDITION,
            {"a": SHUFFLED, "b": (*DIVIDED[:2], "q:output:0 own:output:0")},
            "it does not return the rows of one list of entries",
        ),
        (
            CONDITION,
            {
                "a": SHUFFLED,
                "b": (DIVIDED[0], DIVIDED[1] + "\nr = RandomUniform()", DIVIDED[2]),
            },
            "one of its branches does RandomUniform",
        ),
        (
            CONDITION.replace("StatelessIf(any#", "StatelessIf(each#"),
            {"a": SHUFFLED, "b": DIVIDED},
            "its condition is not the same for all shards",
        ),
        (
            CONDITION,
            {
                "a": SHUFFLED,
                "b": (
                    DIVIDED[0],
                    "all = Const() {value=0} [1]\nsum = Sum(table, all:output:0)\n"
                    "q = Mul(values, sum:output:0)\nsame = Identity(rows)",
                    DIVIDED[2],
                ),
            },
            "in a branch, it sums over the rows of several shards",
        ),
    ],
)
def test_a_condition_of_which_no_side_is_done_on_rows_is_refused(
    text: str, functions: Functions, reason: str
) -> None:
    assert refused(text, functions) == reason
