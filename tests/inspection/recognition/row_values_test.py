"""Of a condition between functions, what the one on rows yields counts, entry by entry."""

from __future__ import annotations

import types
from typing import Any

from tests.graph.text_graph import view_of
from tf_wu_shard.inspection.recognition.algebra import Algebra
from tf_wu_shard.inspection.recognition.row_values import branch_values, row_ops

FUNCTION = """
half = Const() {value=0.5} []
scaled = Mul(rows, half) [?]
summed = UnsortedSegmentSum(scaled, numbers, count) [?]
looked = GatherV2(table, numbers, axis) [?]
moved = Sub(looked, summed) [?]
odd = Tanh(rows) [?]
"""


def yielded(returned: str) -> list[str]:
    """What the function on rows yields, as text, of a table t and a gradient's values g."""
    view = view_of(
        "p = Placeholder() []\nt = Placeholder() [8,2]\ng = Placeholder() [3,2]\n"
        "n = Placeholder() {T=3 dtype=3} [3]\nc = Placeholder() {T=3 dtype=3} []\n"
        "a = Placeholder() {T=3 dtype=3} []\n"
        "if = StatelessIf(p, t, g, n, c, a) {then_branch=&local else_branch=&local} [?]",
        functions={"local": ("table rows numbers count axis", FUNCTION, returned)},
    )
    algebra = Algebra()
    t, g = algebra.thing("t"), algebra.thing("g")
    given = [t, g, None, None, None]
    found = branch_values(view, view.ops["if"], "then_branch", given, algebra)
    names = {algebra.only(t) or 0: "t", algebra.only(g) or 0: "g"}
    return ["?" if v is None else algebra.text(v, names, signed=True) for v in found]


def test_a_sum_of_entries_and_a_look_up_are_taken_for_what_they_are_of() -> None:
    assert yielded("moved:output:0") == ["-g + t"]


def test_of_what_no_rule_names_nothing_is_known_and_the_rest_is() -> None:
    assert yielded("odd:output:0 looked:output:0") == ["?", "t"]


def test_ops_on_rows_are_found_by_name_and_conditions_that_are_no_rows_are_not() -> None:
    parts = [
        types.SimpleNamespace(type=type_, ops=(name,), branch=branch)
        for type_, name, branch in (
            ("UnsortedSegmentSum", "sum0", None),
            ("Mul", "mul0", None),
            ("StatelessIf", "if0", None),
            ("StatelessIf", "rows0", object()),
        )
    ]
    update: Any = types.SimpleNamespace(body=parts)
    assert set(row_ops(update)) == {"sum0", "rows0"}
