"""Plans for branches take no variable that a graph beside or around them needs whole."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.text_graph import STACKS_DIALECT, view_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.nesting import Nested
from tf_wu_shard.refusals import Storage, Updates
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.weight_update.analysis.types import Analysis, RefusedUpdate
from tf_wu_shard.weight_update.nested_plans import NestedPlans
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.sharding import Sharding, plan_sharding

SHAPES = {"w": (4,), "m": (4,)}
# A step of momentum, inside of a branch.
TRAINING = """
all = Const() {value=1x2} []
x = Placeholder() [4]
g = Square(x) [4]
s = CrossReplicaSum(g, all) [4]
put = AssignAddVariableOp(m0, s)
moved = ReadVariableOp(m0) [4] ^put
step = AssignSubVariableOp(w0, moved)
"""
READING = "look = ReadVariableOp({0}0) [4]\nkept = Print(look) []\n"
BRANCH = "p = Placeholder() []\nc = If(p, w0, m0) {then_branch=&any else_branch=&any}\n"
FUNCTIONS = {"any": ("w m", "put = AssignVariableOp(m, w)\nstep = AssignVariableOp(w, m)", "")}


def captured(text: str) -> Captured:
    view = view_of(text, replicas=1, variables=SHAPES, functions=FUNCTIONS)
    return Captured(view, {})


def branch(text: str, attribute: str = "then_branch", inner: tuple[Nested, ...] = ()) -> Nested:
    """A branch of the op c."""
    graph = TracedGraph(tf.Graph())
    return Nested("c", attribute, 0, attribute, graph, captured(text), (), (), inner, True)


def planned(
    around: str,
    *nested: Nested,
    weights_in_shards: bool = False,
    in_shards: tuple[str, ...] = (),
) -> NestedPlans:
    """The plans for branches of an op, where ops stand around it."""
    both = nested if len(nested) > 1 else (*nested, branch("", "else_branch"))
    found = NestedPlans(captured(BRANCH + around), both, STACKS_DIALECT)
    dialect: Any = SimpleNamespace(
        preferences=Preferences(1, bucket_bytes=1, weights_in_shards=weights_in_shards)
    )

    def plan_one(analysis: Analysis, constraints: StorageConstraints) -> Sharding:
        return plan_sharding(analysis, dialect, ShardingOptions(), constraints)

    found.plan(plan_one, lambda analysis, one: StorageConstraints(), in_shards)
    return found


def in_shards(found: NestedPlans) -> list[list[str]]:
    """What each plan has in shards."""
    return [[slot.variable for slot in s.plan.in_shards] for s in found.shardings.values()]


def test_what_no_other_graph_touches_is_taken() -> None:
    assert in_shards(planned("", branch(TRAINING))) == [["m"], []]


@pytest.mark.parametrize(
    ("around", "beside", "kind"),
    [
        (READING.format("m"), "", Storage.UPDATED_INSIDE_USED_OUTSIDE),
        ("", READING.format("m"), Storage.UPDATED_INSIDE_USED_ELSEWHERE),
    ],
    ids=("around", "beside"),
)
def test_the_update_of_a_slot_that_another_graph_uses_stays_whole(
    around: str, beside: str, kind: Storage
) -> None:
    found = planned(around, branch(TRAINING), branch(beside, "else_branch"))
    assert in_shards(found) == [[], []]
    refusal = found.constraints[0].whole_updates["m"]
    assert refusal == kind.at(op="c")
    assert [left.variable for left in found.shardings[0].plan.left_alone] == ["w"]


def test_a_variable_that_the_other_graph_has_in_shards_too_is_taken_by_both() -> None:
    both = branch(TRAINING), branch(TRAINING, "else_branch")
    assert in_shards(planned("", *both)) == [["m"], ["m"]]
    # Where one of them has to give it up the other one does, too.
    assert in_shards(planned(READING.format("m"), *both)) == [[], []]


def test_a_weight_in_shards_may_be_read_elsewhere_and_stays_whole_where_it_is_written() -> None:
    reading = planned(READING.format("w"), branch(TRAINING), weights_in_shards=True)
    assert in_shards(reading)[0] == ["w", "m"]
    write = "put = AssignVariableOp(w0, p)\n"
    writing = planned(write, branch(TRAINING), weights_in_shards=True)
    assert in_shards(writing)[0] == ["m"]
    assert writing.constraints[0].whole_weights.keys() == {"w"}
    # One that lives in shards cannot be gathered at once: its update stays as it was.
    held = planned(write, branch(TRAINING), weights_in_shards=True, in_shards=("w",))
    assert in_shards(held)[0] == [] and held.constraints[0].whole_updates.keys() == {"w"}


def test_inner_branches_come_first_and_what_they_report_is_not_said_again_around() -> None:
    inner = branch(TRAINING)
    outer = branch(BRANCH, "else_branch", (inner,))
    found = NestedPlans(captured(BRANCH), (outer,), STACKS_DIALECT)
    assert (found.number(inner), found.number(outer)) == (0, 1)
    assert [u.name for u in found.analyses[0].updates] == ["w"]
    inside = RefusedUpdate("w", (), Updates.INSIDE_OF_CALL.at("c", op_type="If"))
    others = (
        dataclasses.replace(inside, variable="other"),
        dataclasses.replace(inside, refusal=Updates.RETURNED.at("elsewhere")),
    )
    given = dataclasses.replace(found.analyses[1], refused=(inside, *others))
    assert found.without_inner(given, (inner,)).refused == others
