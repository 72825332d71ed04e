"""A branch op's place is taken by its calls, what chooses of what they return, and what waits."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.dtypes import BOOL, FLOAT32, INT64, RESOURCE
from tf_wu_shard.graph.op import Value
from tf_wu_shard.program.branch_choice import (
    BranchChoice,
    Result,
    branch_call,
    branch_number,
    select_of,
)
from tf_wu_shard.program.speculation import RunsInVainError


def condition(result: int = FLOAT32, test: int = BOOL) -> tf.compat.v1.NodeDef:
    node = tf.compat.v1.NodeDef(name="if", op="If", device="d0")
    node.input.extend(["test", "rows:1", "values", "^z"])
    node.attr["Tcond"].type = test
    node.attr["Tin"].list.type.extend([INT64, FLOAT32])
    node.attr["Tout"].list.type.append(result)
    node.attr["then_branch"].func.name, node.attr["else_branch"].func.name = "yes", "no"
    return node


def test_branches_are_called_in_turn_and_the_test_selects() -> None:
    adopted: list[str] = []
    choice = BranchChoice(condition(), lambda new: adopted.append(new.name))
    assert [call.name for call in choice.calls] == [branch_call("if", n) for n in (0, 1)]
    assert [call.attr["f"].func.name for call in choice.calls] == ["yes", "no"]
    assert [*choice.calls[0].input] == ["rows:1", "values", "^z"]
    values: dict[Value, Value] = {}
    test, select = choice.selection({0: Result(FLOAT32, (3,))}, values, {})
    assert [*test.input] == ["test"] and test.name == select_of(branch_call("if", 0)).test
    assert [*select.input] == [test.name, *(branch_call("if", n) for n in (0, 1))]
    assert values == {Value("if"): Value(select.name)}
    done = choice.done()
    assert (done.name, done.op, [*done.input]) == ("if", "NoOp", ["^z"])
    assert {test.name, select.name, "if"} <= {*adopted}


def test_a_branch_is_known_by_its_call() -> None:
    assert branch_number("if", branch_call("if", 1)) == 1
    assert branch_number("if", "if/other") is None and branch_number("if", "") is None
    assert select_of(branch_call("if", 0)).inputs("a", "b")[1:] == ["a", "b"]
    assert select_of(branch_call("if", 1)).inputs("a", "b")[1:] == ["b", "a"]


def test_lists_are_handed_where_they_are() -> None:
    choice = BranchChoice(condition(), lambda new: None)
    devices = {"rows": "d1", "values": ""}
    around = {n: tf.compat.v1.NodeDef(name=n, device=device) for n, device in devices.items()}
    added = choice.handing_lists([(), (0, 1)], around.get)
    first, second = (node for node in added if node.op == "StridedSlice")
    assert (first.input[0], first.device) == ("rows:1", "d1")
    assert (second.input[0], second.device) == ("values", "")
    assert [*choice.calls[1].input] == [first.name, second.name, "^z"]
    assert [*choice.calls[0].input] == ["rows:1", "values", "^z"]
    (end,) = (node for node in added if node.op == "SelectV2")
    # The second branch is taken where the test fails.
    assert [text.rpartition("/")[2] for text in end.input[1:]] == ["none", "all"]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (condition(result=RESOURCE), "it yields a resource"),
        (condition(test=FLOAT32), "its predicate is no truth value"),
    ],
)
def test_what_cannot_be_selected_is_refused(node: tf.compat.v1.NodeDef, reason: str) -> None:
    choice = BranchChoice(node, lambda new: None)
    with pytest.raises(RunsInVainError, match=reason):
        choice.selection({0: Result(node.attr["Tout"].list.type[0], None)}, {}, {})
