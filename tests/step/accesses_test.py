"""Who touches a variable, and how."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.rules.variables import Access
from tf_wu_shard.step.accesses import accesses


def kinds(text: str, **keywords: object) -> list[tuple[str, Access]]:
    """The accesses of the variable w0 in a graph of one replica."""
    view = view_of(text, replicas=1, variables={"w": (4,)}, **keywords)  # type: ignore[arg-type]
    return [(a.op.name, a.access) for a in accesses(view, "w0")]


def test_reads_writes_and_fused_updates_are_told_apart() -> None:
    found = kinds(
        """
        c = Const() [4]
        read = ReadVariableOp(w0) [4]
        whole = ResourceGather(w0, c) [4] ^read
        write = AssignVariableOp(w0, read) ^whole
        add = AssignAddVariableOp(w0, c) ^write
        apply = ResourceApplyGradientDescent(w0, c, c) ^add
        scatter = ResourceScatterAdd(w0, c, c) ^apply
        m = Placeholder() {T=20}
        rows = ResourceSparseApplyMomentum(w0, m, c, c, c, c) ^scatter
        odd = ResourceScatterMul(w0, c, c) ^rows
        """,
        outputs=["read"],
    )
    assert found == [
        ("read", Access.READ),
        ("whole", Access.LOOK),
        ("write", Access.WRITE),
        ("add", Access.WRITE),
        ("apply", Access.APPLY),
        ("scatter", Access.WRITE),
        ("rows", Access.APPLY),
        ("odd", Access.UNKNOWN),
    ]


def test_a_read_that_nobody_looks_at_is_no_access() -> None:
    assert kinds("read = ReadVariableOp(w0) [4]") == []


def test_a_handle_that_is_itself_written_somewhere_is_unknown() -> None:
    assert kinds("write = AssignVariableOp(w0, w0)") == [("write", Access.UNKNOWN)]


FUNCTIONS = {
    "ignores": ("h", "", ""),
    "reads": ("h", "r = ReadVariableOp(h)", "r:value:0"),
    "reads_by_another_name": ("h", "i = Identity(h)\nr = ReadVariableOp(i:output:0)", "r:value:0"),
    "writes": ("h", "c = Const()\na = AssignVariableOp(h, c:output:0)", ""),
    "calls_reads": ("h", "p = StatefulPartitionedCall(h) {f=&reads}", "p:output:0"),
    "calls_itself": ("h", "p = StatefulPartitionedCall(h) {f=&calls_itself}", ""),
    "returns_it": ("h", "x = HandleToText(h)", "x:output:0"),
}


@pytest.mark.parametrize(
    ("callee", "access"),
    [
        ("ignores", Access.PASSED_ON),
        ("reads", Access.READ),
        ("reads_by_another_name", Access.READ),
        ("calls_reads", Access.READ),
        ("writes", Access.UNKNOWN),
        ("calls_itself", Access.UNKNOWN),
        ("returns_it", Access.UNKNOWN),
        ("is_missing", Access.UNKNOWN),
    ],
)
def test_a_called_function_does_what_its_body_does(callee: str, access: Access) -> None:
    text = f"call = StatefulPartitionedCall(w0) {{f=&{callee}}}"
    assert kinds(text, functions=FUNCTIONS) == [("call", access)]


@pytest.mark.parametrize(
    ("then", "otherwise", "access"),
    [
        ("ignores", "ignores", Access.PASSED_ON),
        ("ignores", "reads", Access.READ),
        ("reads", "writes", Access.UNKNOWN),
    ],
)
def test_a_branch_counts_though_it_may_not_run(then: str, otherwise: str, access: Access) -> None:
    text = f"p = Const()\nif = If(p, w0) {{then_branch=&{then} else_branch=&{otherwise}}}"
    assert kinds(text, functions=FUNCTIONS) == [("if", access)]


def test_a_handle_as_the_predicate_of_a_branch_is_unknown() -> None:
    text = "if = If(w0) {then_branch=&ignores else_branch=&ignores}"
    assert kinds(text, functions=FUNCTIONS) == [("if", Access.UNKNOWN)]


def test_an_argument_that_the_function_does_not_have_is_unknown() -> None:
    text = "c = Const()\ncall = StatefulPartitionedCall(c, w0) {f=&reads}"
    assert kinds(text, functions=FUNCTIONS) == [("call", Access.UNKNOWN)]
