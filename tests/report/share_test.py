"""The share of a step: of elements and of slots, small variables and refused ones included."""

from __future__ import annotations

import dataclasses

from tests.weight_update.plan.analyses import Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Plan, Rules, Updates
from tf_wu_shard.report.report import Report
from tf_wu_shard.report.share import HeldBack, Share, held_back, left_alone
from tf_wu_shard.report.summary import summarize
from tf_wu_shard.weight_update.analysis.types import Analysis, UpdatedVariable
from tf_wu_shard.weight_update.plan.planner import make_plan


def report_of(analysis: Analysis) -> Report:
    plan = make_plan(analysis, ShardingOptions(), Preferences(min_elements=8, bucket_bytes=1))
    return summarize("train", plan, {}, "")


def with_known(analysis: Analysis, weight: Weight) -> Analysis:
    """The same, the one refused update with its weight and slots known."""
    keys = (weight.name, *weight.slots)
    known = tuple(UpdatedVariable(k, (), weight.shape, 1, k != weight.name) for k in keys)
    (refused,) = analysis.refused
    return dataclasses.replace(analysis, refused=(dataclasses.replace(refused, variables=known),))


ADAM = Weight("w", (64,), ("m", "v"))
SMALL = Weight("b", (4,), ("n",))
REFUSED = Weight("r", (32,), ("s",))


def test_the_share_is_of_all_elements_and_of_all_slots() -> None:
    report = report_of(with_known(analysis_of([ADAM, SMALL], refused=[REFUSED]), REFUSED))
    assert report.elements == Share(64, 64 + 4 + 32)
    assert report.slot_bytes == Share(4 * 128, 4 * (128 + 4 + 32))
    assert report.slot_bytes.total == report.slot_bytes_per_replica.unsharded
    assert report.share == 0.64


def test_a_refused_gradient_of_an_unknown_variable_has_its_own_size() -> None:
    report = report_of(analysis_of([ADAM], refused=[REFUSED]))
    assert report.elements == Share(64, 96)


def test_what_holds_most_back_is_named_with_its_largest_variable() -> None:
    left = [
        left_alone("small", Plan.TOO_SMALL.at(elements=9, limit=10), 9),
        left_alone("a", Rules.NO_RULE.at("sort_a", op_type="Sort"), 300),
        left_alone("b", Rules.NO_RULE.at("cumsum", op_type="Cumsum"), 400),
        left_alone("c", Rules.NO_RULE.at("sort_c", op_type="Sort"), 301),
        # Refused in two ways, it counts once.
        left_alone("b", Rules.NO_RULE.at("cumsum", op_type="Cumsum"), 400),
    ]
    cure = "an update without Sort, or a rule for this op"
    assert held_back(left, 0.9) == HeldBack(
        2, 601, "c", "no rule for Sort", "sort_c", cure, kind="no_rule"
    )


def test_what_is_small_holds_back_where_little_is_shared() -> None:
    left = [left_alone("b", Plan.TOO_SMALL.at(elements=9, limit=10), 9)]
    assert held_back(left, 0.5) is None
    found = held_back(left, 0.49)
    assert found is not None and found.largest == "b"
    assert held_back([], 0.0) is None
    assert held_back([left_alone("none", Plan.EMPTY.at())], 0.0) is None


def test_a_mean_that_is_no_update_holds_nothing_back_beside_what_is_shared() -> None:
    queue = left_alone("queue", Updates.NOT_TRAINABLE.at("queue"))
    assert held_back([queue], 0.9) is None
    found = held_back([queue], 0.0)
    assert found is not None and found.largest == "queue"
    trained = left_alone("w", Updates.NOT_TRAINABLE.at("w"), 64)
    assert held_back([queue, trained], 0.9) == held_back([trained], 0.9) is not None
