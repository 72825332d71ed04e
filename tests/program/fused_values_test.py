"""A fused update is done to values: on variables of its own, or later, where the handles are."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.fused_values import (
    ended_in_place,
    on_scratch,
    restored,
    stand_in,
    stood_for,
)
from tf_wu_shard.program.row_lists import Select
from tf_wu_shard.program.speculation import RunsInVainError

FLOAT = 1
W = VariableRef("w", 0, 2, (4,), FLOAT, True, "d0", True)
M = VariableRef("m", 0, 2, (4,), FLOAT, True, "d0")
REFS = {0: W, 1: M}
HELD = {0: "old_w", 1: "old_m"}
HANDLES = {("w", 0): ("hw", W), ("m", 0): ("hm", M)}
BEFORE = {"hw": "read_w", "hm": "read_m"}


def momentum(name: str = "step") -> tf.compat.v1.NodeDef:
    operands = ["hw", "hm", "lr", "g", "rate", "^z"]
    made = tf.compat.v1.NodeDef(name=name, op="ResourceApplyMomentum", input=operands)
    made.attr["T"].type = FLOAT
    return made


def select(name: str) -> Select:
    return Select("branch/1" if name.startswith("other") else "branch/0", "test", is_taken=True)


def scattered(name: str, value: str) -> list[tf.compat.v1.NodeDef]:
    made = tf.compat.v1.NodeDef(name=name, op="ResourceScatterAdd", input=["hm", "rows", "g"])
    made.attr["dtype"].type, made.attr["Tindices"].type = FLOAT, 3
    found = stand_in(made, {0: value}, {0: M})
    assert found is not None
    return found[0]


def test_what_stands_for_it_has_its_results() -> None:
    made = stand_in(momentum(), HELD, REFS)
    assert made is not None
    ((stands,), left) = made
    assert (stands.name, stands.op) == ("step", "IdentityN")
    assert [*stands.input] == ["old_w", "old_m", "lr", "g", "rate", "^z"]
    assert [*stands.attr["T"].list.type] == [FLOAT] * 5
    assert left == {0: "step", 1: "step:1"}


def test_nothing_stands_for_one_that_keeps_a_handle() -> None:
    assert stand_in(momentum(), {1: "old_m"}, {1: M}) is None


def test_it_is_put_back_on_the_variables_and_what_it_leaves_is_read() -> None:
    made = stand_in(momentum(), {0: "read_w", 1: "read_m"}, REFS)
    assert made is not None
    found = restored(made[0], HANDLES, BEFORE, lambda new: None, select)
    by_name = {n.name: n for n in found.nodes}
    applied = by_name["step"]
    assert applied.op == "ResourceApplyMomentum"
    assert [*applied.input] == ["hw", "hm", "lr", "g", "rate", "^read_w", "^read_m"]
    assert found.values == {
        Value("step"): Value("step/wu_shard_after_0"),
        Value("step", 1): Value("step/wu_shard_after_1"),
    }
    assert [*by_name["step/wu_shard_after_1"].input] == ["hm", "^step"]
    assert found.shapes["step/wu_shard_after_0"] == ((4,),)
    assert found.gone == {"step"}


def test_what_was_done_to_a_variable_before_is_written_first() -> None:
    made = stand_in(momentum(), {0: "halved", 1: "read_m"}, REFS)
    assert made is not None
    found = restored(made[0], HANDLES, BEFORE, lambda new: None, select)
    filled, applied = found.nodes[:2]
    assert filled.op == "AssignVariableOp"
    assert [*filled.input] == ["hw", "halved", "^read_w"]
    assert f"^{filled.name}" in applied.input


def test_two_of_one_variable_are_not_put_back() -> None:
    first, second = (stand_in(momentum(name), HELD, REFS) for name in ("one", "two"))
    assert first is not None and second is not None
    with pytest.raises(RunsInVainError, match="update one variable in place more than once"):
        restored([*first[0], *second[0]], HANDLES, BEFORE, lambda new: None, select)


def test_rows_are_written_in_place_after_what_the_branch_made_of_the_variable() -> None:
    nodes = [*scattered("one", "halved"), *scattered("two", "one")]
    found = restored(nodes, HANDLES, BEFORE, lambda new: None, select)
    assert [node.op for node in found.nodes] == [
        *("SelectV2", "AssignVariableOp", "ResourceScatterAdd", "ReadVariableOp"),
        *("ResourceScatterAdd", "ReadVariableOp"),
    ]
    chosen, filled, first, after, second, last = found.nodes
    # Where the branch is not taken, there are no rows, and the variable is as it was.
    assert [*chosen.input] == ["test", "halved", "read_m"]
    assert [*filled.input] == ["hm", chosen.name, "^read_m"]
    assert [*first.input] == ["hm", "rows", "g", "^read_m", f"^{filled.name}"]
    assert [*after.input] == ["hm", "^one"]
    assert [*second.input] == ["hm", "rows", "g", f"^{after.name}"]
    assert found.held == {"hm": Value(last.name)}
    assert stood_for(nodes[0]) == ("ResourceScatterAdd", 1)


def test_rows_that_two_branches_write_are_not_put_back() -> None:
    nodes = [*scattered("one", "read_m"), *scattered("other", "one")]
    with pytest.raises(RunsInVainError, match="update one variable in place more than once"):
        restored(nodes, HANDLES, BEFORE, lambda new: None, select)


@pytest.mark.parametrize(("otherwise", "in_place"), [("read_m", True), ("halved", False)])
def test_what_a_variable_holds_already_is_not_written_to_it(otherwise: str, in_place: bool) -> None:
    chosen = tf.compat.v1.NodeDef(name="chosen", op="SelectV2", input=["t", "last", otherwise])
    write = tf.compat.v1.NodeDef(name="write", op="AssignVariableOp")
    write.input.extend(["hm", "chosen", "^z"])
    held = {"hm": Value("last")}
    found, gone = ended_in_place([chosen, write], {"write"}, held, BEFORE)
    if in_place:
        assert gone == {"chosen"}
        assert [(node.op, [*node.input]) for node in found] == [("NoOp", ["^z", "^last"])]
    else:
        assert gone == set()
        assert [*found[1].input] == ["hm", "chosen", "^z", "^last"]


def test_on_variables_of_its_own_it_computes_what_it_does_on_the_others() -> None:
    weight, slot = tf.Variable([1.0, 2.0, 3.0, 4.0]), tf.Variable([0.5] * 4)
    made = on_scratch(momentum(), HELD, REFS)
    assert made is not None
    nodes, left = made
    given = {"old_w": weight.numpy(), "old_m": slot.numpy(), "lr": 0.1, "rate": 0.9}
    given["g"] = [1.0, -1.0, 2.0, 0.0]

    @tf.function
    def step() -> list[tf.Tensor]:
        operands = {name: tf.constant(value, tf.float32) for name, value in given.items()}
        first = tf.compat.v1.NodeDef(name="z", op="NoOp")
        graph_def = tf.compat.v1.GraphDef(node=[first, *nodes])
        results: list[tf.Tensor] = tf.graph_util.import_graph_def(
            graph_def, operands, [f"{left[slot]}:0" for slot in (0, 1)], name=""
        )
        return results

    found = step()
    tf.raw_ops.ResourceApplyMomentum(
        var=weight.handle, accum=slot.handle, lr=0.1, grad=given["g"], momentum=0.9
    )
    assert found[0].numpy().tobytes() == weight.numpy().tobytes()
    assert found[1].numpy().tobytes() == slot.numpy().tobytes()
