"""Which functions an op calls is read from its attributes, never from its name."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.calls import (
    all_named_by,
    callee_names,
    callees,
    first_argument,
    is_call,
    named_by,
    names_in,
    rename,
    run_by,
)


def node(op: str, **functions: list[str] | str) -> Any:
    made = tf.compat.v1.NodeDef(name="n", op=op)
    for key, names in functions.items():
        if isinstance(names, str):
            made.attr[key].func.name = names
        else:
            for name in names:
                made.attr[key].list.func.add().name = name
    return made


@pytest.mark.parametrize(
    ("call", "expected", "first"),
    [
        (node("PartitionedCall", f="g"), [("f", ["g"])], 0),
        (
            node("If", then_branch="t", else_branch="e"),
            [("then_branch", ["t"]), ("else_branch", ["e"])],
            1,
        ),
        (node("StatelessCase", branches=["a", "b"]), [("branches", ["a", "b"])], 1),
        (node("While", cond="c", body="b"), [("cond", ["c"]), ("body", ["b"])], 0),
    ],
)
def test_a_call_runs_what_its_attributes_name(
    call: Any, expected: list[tuple[str, list[str]]], first: int
) -> None:
    assert is_call(call.op)
    assert callees(call) == expected
    assert callee_names(call) == [name for _, names in expected for name in names]
    assert first_argument(call.op) == first


def test_an_attribute_that_a_call_lacks_names_nothing_and_is_not_added() -> None:
    call = node("PartitionedCall")
    assert callees(call) == [("f", [])]
    assert "f" not in call.attr


def test_other_ops_name_functions_that_they_do_not_hand_operands() -> None:
    mapped = node("MapDataset", f="g")
    assert not is_call(mapped.op)
    assert list(named_by(mapped)) == [("f", ["g"])]
    assert all_named_by(mapped) == ["g"]
    mapped.attr["T"].type = 1
    assert all_named_by(mapped) == ["g"]


def test_what_a_node_runs_is_followed_to_the_end() -> None:
    view = view_of(
        "x = Placeholder() [4]\ny = PartitionedCall(x) {f=&outer} [4]\n",
        functions={
            "outer": ("a", "c = If(a, a) {then_branch=&inner else_branch=&again} [4]\n", "c"),
            "inner": ("a", "s = Neg(a) [4]\n", "s"),
            "again": ("a", "c = PartitionedCall(a) {f=&again} [4]\n", "c"),
            "idle": ("a", "s = Neg(a) [4]\n", "s"),
        },
    )
    assert sorted(run_by(view.ops["y"].node, view.functions)) == ["again", "inner", "outer"]
    assert run_by(view.ops["x"].node, view.functions) == []


def test_functions_are_renamed_where_they_stand() -> None:
    call = node("Case", branches=["a", "b"])
    rename(call.attr["branches"], ["c", "d"])
    assert names_in(call.attr["branches"]) == ["c", "d"]
    with pytest.raises(ValueError, match="shorter"):
        rename(call.attr["branches"], ["e"])
