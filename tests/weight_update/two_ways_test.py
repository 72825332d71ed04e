"""Of the functions of an op, some may use the shards of a slot, and others the whole of it."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.errors import StorageError
from tf_wu_shard.weight_update.two_ways import branches_apart

OP = "p = Placeholder() {T=10 dtype=10} []\nshard = Placeholder() {T=20}\n"
IF = "go = If(p, shard, m0) {then_branch=&one else_branch=&other} [6]"


def _function(argument: str, op: str) -> tuple[str, str, str]:
    """A function of a shard, a, and a whole slot, b, which does something to one of them."""
    if op == "read":
        return ("a b", f"r = ReadVariableOp({argument})", "r:value:0")
    return ("a b", f"w = AssignVariableOp({argument}, {argument})", "")


def apart(
    op: str, one: tuple[str, str, str], other: tuple[str, str, str]
) -> dict[tuple[str, str], int]:
    view = view_of(
        OP + op, variables={"m": (6,)}, controls=("go",), functions={"one": one, "other": other}
    )
    handles = {name: ref for name, ref in view.variables.items() if name == "m0"}
    return branches_apart(view, {"shard": "m"}, handles)


@pytest.mark.parametrize("whole_first", [False, True])
def test_a_branch_that_writes_the_whole_beside_one_that_writes_shards_is_known(
    whole_first: bool,
) -> None:
    shards, whole = _function("a", "write"), _function("b", "write")
    found = apart(IF, whole, shards) if whole_first else apart(IF, shards, whole)
    assert found == {("go", "m"): 0 if whole_first else 1}


@pytest.mark.parametrize(("by_shards", "by_whole"), [("read", "write"), ("write", "read")])
def test_of_exclusive_branches_one_may_read_what_the_other_writes(
    by_shards: str, by_whole: str
) -> None:
    assert apart(IF, _function("a", by_shards), _function("b", by_whole)) == {}


def test_a_loop_that_mixes_them_is_an_error_if_anything_is_written() -> None:
    loop = "go = While(shard, m0) {cond=&one body=&other} [6]"
    assert apart(loop, _function("a", "read"), _function("b", "read")) == {}
    with pytest.raises(StorageError, match="'go' runs use slot 'm'"):
        apart(loop, _function("a", "read"), _function("b", "write"))


def test_a_branch_that_does_both_is_an_error() -> None:
    both = ("a b", "r = ReadVariableOp(a)\nw = AssignVariableOp(b, b)", "")
    with pytest.raises(StorageError, match="nothing says in which order"):
        apart(IF, both, _function("a", "read"))
