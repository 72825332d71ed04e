"""Ops call what was made of branches, with the shards' handles, and replicas agree on the turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tests.program.nodes import nodes
from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.calls import callees
from tf_wu_shard.graph.op import Value
from tf_wu_shard.weight_update.nested_calls import agreeing, as_arguments, by_place, calling

IF = "c = If(p, x) {then_branch=&old_then else_branch=&old_else Tcond=10}\n"


class Summing:
    """Replicas that sum, and note what they were asked to."""

    def __init__(self, total: int) -> None:
        self.replicas = SimpleNamespace(total=total)
        self.summed: list[tuple[Any, Any]] = []

    def all_reduce(self, at: Emitter, operands: Any, shapes: Any) -> list[list[Value]]:
        self.summed.append((operands, shapes))
        ((value,),) = operands
        return [[at.op("Identity", [value], "total")]]


def branch(op: str, attribute: str, number: int) -> Any:
    """A branch, by where it is called."""
    return SimpleNamespace(op=op, attribute=attribute, number=number)


def made(name: str) -> Any:
    """A function made in the place of another."""
    return SimpleNamespace(name=name.encode())


def agreed(total: int, *, is_first: bool) -> tuple[list[Any], GraphBuilder, Summing]:
    """The nodes of `IF` after the vote, what was emitted for it, and who voted."""
    (node,) = nodes(IF)
    node.attr["Tcond"].type = tf.bool.as_datatype_enum
    builder, dialect = GraphBuilder([node.name]), Summing(total)
    given: Any = dialect
    return agreeing([node], {"c": is_first}, builder, given), builder, dialect


def test_branches_are_told_apart_by_op_attribute_and_number() -> None:
    one, other, third = (branch(*p) for p in (("c", "f", 0), ("c", "f", 1), ("d", "f", 0)))
    found = by_place([one, other, third])
    assert found == {("c", "f", 0): one, ("c", "f", 1): other, ("d", "f", 0): third}


def test_a_shards_input_becomes_the_argument_that_was_the_variables() -> None:
    text = "new = Placeholder()\nr = ReadVariableOp(new)\nother = Tanh(r)\nlone = NoOp(kept)\n"
    given = nodes(text)
    found = as_arguments(given, {"new": "w", "kept": None})
    assert {node.name: [*node.input] for node in found} == {
        "r": ["w"],
        "other": ["r"],
        # No argument is known for this one.
        "lone": ["kept"],
    }
    assert [*given[1].input] == ["new"]


def test_only_the_function_of_the_place_is_called_instead() -> None:
    given = nodes(IF + "d = PartitionedCall(x) {f=&old_then}\n")
    first, second = calling(given, {("c", "else_branch", 0): made("new")})
    assert callees(first) == [("then_branch", ["old_then"]), ("else_branch", ["new"])]
    assert second is given[1]
    # The old graph is as it was.
    assert callees(given[0])[1] == ("else_branch", ["old_else"])


def test_one_of_several_functions_of_an_attribute_is_replaced_by_its_number() -> None:
    node = tf.compat.v1.NodeDef(name="c", op="Case", input=["i"])
    for name in ("a", "b", "e"):
        node.attr["branches"].list.func.add().name = name
    (found,) = calling([node], {("c", "branches", 1): made("new")})
    assert callees(found) == [("branches", ["a", "new", "e"])]


def test_replicas_take_a_branch_by_the_sum_of_their_votes() -> None:
    ((node,), builder, dialect) = agreed(4, is_first=True)
    emitted = {node.name: node for node in builder.nodes}
    greater = emitted[node.input[0]]
    assert greater.op == "Greater" and [*node.input][1:] == ["x"]
    total, least = (emitted[name] for name in greater.input)
    # All four have to vote for the branch with the update.
    assert tf.make_ndarray(least.attr["value"].tensor) == 3.5
    assert total.op == "Identity"
    ((operands, shapes),) = dialect.summed
    ((votes,),) = operands
    cast = emitted[votes.op]
    assert (cast.op, [*cast.input], cast.attr["DstT"].type) == ("Cast", ["p"], FLOAT32)
    assert shapes == [()]


def test_one_vote_for_the_other_branch_is_enough_where_the_update_is_in_the_second() -> None:
    _, builder, _ = agreed(4, is_first=False)
    (least,) = (node for node in builder.nodes if node.op == "Const")
    assert tf.make_ndarray(least.attr["value"].tensor) == 0.5


def test_what_takes_no_such_branch_stays_as_it_is() -> None:
    (number,) = nodes(IF)
    number.attr["Tcond"].type = tf.int32.as_datatype_enum
    others = [*nodes("d = NoOp()\n"), number]
    builder = GraphBuilder([])
    none: Any = None
    found = agreeing(others, {"c": True}, builder, none)
    assert [new is old for new, old in zip(found, others, strict=True)] == [True, True]
    assert builder.nodes == []
