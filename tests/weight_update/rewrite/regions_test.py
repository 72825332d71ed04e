"""What XLA compiled before is compiled again: with the update it is of, or as it was."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tests.weight_update.plan.analyses import Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.program.compiled_calls import mark
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.rewrite.regions import with_calls_left, with_what_is_left
from tf_wu_shard.weight_update.rewrite.result import Region

_CPU = "/device:CPU:0"


def node(name: str, op: str, *inputs: str, call: str = "", **types: Any) -> Any:
    made = tf.compat.v1.NodeDef(name=name, op=op, input=inputs, device=_CPU)
    for key, value in types.items():
        made.attr[key].type = value.as_datatype_enum
    if call:
        mark(made, call)
    return made


NODES = [
    node("x", "Placeholder", dtype=tf.float32),
    node("w", "Placeholder", dtype=tf.resource),
    node("rate", "Sqrt", "x", call="one", T=tf.float32),
    node("now", "ReadVariableOp", "w", call="other", dtype=tf.float32),
    node("next", "Mul", "now", "x", call="other", T=tf.float32),
    node("put", "AssignSubVariableOp", "w", "next", call="other", dtype=tf.float32),
    node("apart", "Neg", "x", T=tf.float32),
]
OF_UPDATE = Region(
    "w", frozenset({"emitted"}), frozenset({"slot"}), {_CPU: "w"}, exact=False, as_asked_for=True
)


def plan_of(*calls: str) -> ShardingPlan:
    analysis = analysis_of([Weight("w", (64,), ("m",))])
    (update,) = analysis.updates
    compiled = dataclasses.replace(update, compiled_in=frozenset(calls))
    analysis = dataclasses.replace(analysis, updates=(compiled,))
    return make_plan(analysis, ShardingOptions(min_elements=1), Preferences(1, 1))


def test_what_is_left_of_the_call_of_an_update_goes_with_it() -> None:
    (found,) = with_what_is_left([OF_UPDATE], NODES, plan_of("one"))
    assert found.ops == {"emitted", "rate"} and found.handles == {"slot"}
    (found,) = with_what_is_left([OF_UPDATE], NODES, plan_of("other", "one"))
    assert found.ops == {"emitted", "rate", "now", "next", "put"}
    assert found.handles == {"slot", "w"}
    assert with_what_is_left([OF_UPDATE], NODES, plan_of()) == [OF_UPDATE]


def test_what_is_left_of_other_calls_is_compiled_as_it_was() -> None:
    with_rate = with_what_is_left([OF_UPDATE], NODES, plan_of("one"))
    own, other = with_calls_left(with_rate, NODES)
    assert own == with_rate[0]
    assert other.name == "other" and other.ops == {"now", "next", "put"}
    assert other.handles == {"w"} and other.as_asked_for and not other.exact
    names = [region.name for region in with_calls_left([], NODES)]
    assert names == ["one", "other"]
    assert with_calls_left([], [n for n in NODES if n.name in ("x", "apart")]) == ()
