"""What values are made of is followed through calls, branches and loops, result by result."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import parse_value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.reachable import reachable
from tf_wu_shard.step import origins
from tf_wu_shard.step.origins import Origin

INPUTS = "a = Placeholder() [4]\nb = Placeholder() [4]\nn = Placeholder() []\n"
REFS = {"w": VariableRef("w", 0, 2, (4,), 1, True, "")}

SWAPS = ("p q", "s = Mul(q, q)\nt = Identity(p)\n", "s:output:0 t:output:0")
SUMS = ("p q", "s = CollectiveReduceV2(p, q, q) {merge_op=Add}\n", "s:output:0 p")
DRAWS = ("p q", "d = RandomUniform(p)\nk = Const() {value=3}\ns = Mul(d, k)\n", "s:output:0 q")
HOLDS = ("p q", "k = Const() {value=3}\ns = Mul(p, k)\n", "s:output:0 q")
WRITES = ("v p", "put = AssignAddVariableOp(v, p)\n", "p")
CALLS_WRITES = ("v p", "in = StatefulPartitionedCall(v, p) {f=&writes} [4]\n", "p")
ITSELF = ("p q", "in = StatefulPartitionedCall(p, q) {f=&itself} [4] [4]\n", "in:output:0 p")
# i and x are carried; x becomes what i is the next time.
ROUND = ("i x k", "m = Mul(i, k)\n", "m:output:0 i k")
ON = ("i x k", "m = Less(i, i)\n", "m:output:0")
ALWAYS = ("v p", "m = Const() {value=1}\n", "m:output:0")

FUNCTIONS = {
    "swaps": SWAPS,
    "sums": SUMS,
    "draws": DRAWS,
    "holds": HOLDS,
    "writes": WRITES,
    "calls_writes": CALLS_WRITES,
    "itself": ITSELF,
    "round": ROUND,
    "on": ON,
    "always": ALWAYS,
    "rewrites": ("v p", "put = AssignAddVariableOp(v, p)\n", "v p"),
}


def view(call: str) -> GraphView:
    return view_of(INPUTS + call, refs=REFS, functions=FUNCTIONS, outputs=["c"])


def behind(of: GraphView, value: str) -> set[str]:
    """The graph's inputs and variables that a value is made of."""
    found = reachable([parse_value(value)], lambda one: origins.before(of, one))
    return {one.op for one in found} & {"a", "b", "n", "w"}


@pytest.mark.parametrize(
    ("call", "first", "second"),
    [
        ("c = PartitionedCall(a, b) {f=&swaps} [4] [4]", {"b"}, {"a"}),
        ("c = StatefulPartitionedCall(a, b) {f=&sums} [4] [4]", set(), {"a"}),
        ("c = StatefulPartitionedCall(a, b) {f=&unknown} [4] [4]", set(), set()),
        ("c = StatefulPartitionedCall(a, b) {f=&itself} [4] [4]", set(), {"a"}),
        # Which branch is taken is part of what comes out.
        ("c = If(n, a, b) {then_branch=&swaps else_branch=&sums} [4] [4]", {"b", "n"}, {"a", "n"}),
        # How often a body runs is part of it as well, but not of what is handed on as it is.
        ("c = While(a, b, n) {cond=&on body=&round} [4] [4] []", {"a", "n"}, {"a", "n"}),
    ],
)
def test_each_result_of_a_call_is_made_of_its_own_arguments(
    call: str, first: set[str], second: set[str]
) -> None:
    of = view(call)
    assert (behind(of, "c"), behind(of, "c:1")) == (first, second)


def test_what_a_loop_hands_on_as_it_is_is_made_of_that_alone() -> None:
    assert behind(view("c = While(a, b, n) {cond=&on body=&round} [4] [4] []"), "c:2") == {"n"}


@pytest.mark.parametrize(
    ("function", "origins_of_both"),
    [
        ("draws", (Origin.OWN, Origin.EVERYBODYS)),
        ("holds", (Origin.CONSTANT, Origin.EVERYBODYS)),
        ("unknown", (Origin.EVERYBODYS, Origin.EVERYBODYS)),
    ],
)
def test_a_call_brings_in_what_its_function_draws_or_holds(
    function: str, origins_of_both: tuple[Origin, Origin]
) -> None:
    of = view(f"c = StatefulPartitionedCall(a, b) {{f=&{function}}} [4] [4]\nd = Identity(c) [4]\n")
    assert tuple(origins.brought_in(of, one) for one in of.results("c")) == origins_of_both
    assert origins.brought_in(of, parse_value("d")) is Origin.EVERYBODYS


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("c = AssignVariableOp(w, a)", {"a"}),
        ("c = StatefulPartitionedCall(w, b) {f=&writes} [4]", {"b"}),
        ("c = StatefulPartitionedCall(w, b) {f=&calls_writes} [4]", {"b"}),
        ("c = If(n, w, b) {then_branch=&writes else_branch=&calls_writes} [4]", {"b", "n"}),
        ("c = While(w, a) {cond=&always body=&rewrites} [4] [4]", {"a"}),
        ("c = ReadVariableOp(w) [4]", set()),
    ],
)
def test_what_a_called_function_writes_counts_as_what_the_variable_is_written_with(
    call: str, expected: set[str]
) -> None:
    of = view(call)
    written = [*origins.written_with(of, "w")]
    assert {name for value in written for name in behind(of, str(value))} == expected
