"""Reports are kept, logged by how much is sharded, and are errors where that is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tests.report.share_test import ADAM, REFUSED, SMALL, report_of
from tests.weight_update.plan.analyses import Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import NothingShardedError, TooLittleShardedError
from tf_wu_shard.refusals import Topology
from tf_wu_shard.report.published import (
    clear_reports,
    is_refused,
    nothing_sharded,
    nothing_to_shard,
    publish,
    reports,
)


@pytest.fixture(autouse=True)
def no_reports() -> Iterator[None]:
    clear_reports()
    yield
    clear_reports()


def test_too_little_is_an_error_where_that_is_asked_for() -> None:
    half = report_of(analysis_of([ADAM, dataclasses.replace(SMALL, shape=(7,))], refused=[REFUSED]))
    asked = ShardingOptions(min_sharded=0.7, on_refusal="raise")
    with pytest.raises(TooLittleShardedError, match=r"62 % of 103 .*min_sharded=0.7 asks for more"):
        publish(half, options=asked)
    assert reports() == (half,)
    assert not is_refused([half], ShardingOptions(min_sharded=0.7))
    assert not is_refused([half], ShardingOptions(min_sharded=0.6, on_refusal="raise"))


def test_a_function_is_judged_with_its_branches() -> None:
    all_of_it = report_of(analysis_of([dataclasses.replace(ADAM, shape=(640,))]))
    nothing = report_of(analysis_of([SMALL]))
    asked = ShardingOptions(min_sharded=0.9, on_refusal="raise")
    assert not is_refused([all_of_it, nothing], asked)
    with pytest.raises(NothingShardedError):
        publish(nothing, options=ShardingOptions(on_refusal="raise"))


def test_less_than_half_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="absl"):
        publish(report_of(analysis_of([ADAM, SMALL])), options=ShardingOptions())
        less = report_of(analysis_of([SMALL, ADAM], refused=[Weight("r", (99,))]))
        publish(less, options=ShardingOptions())
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "held back: r, 59 % of the elements: no rule for Sum" in caplog.text


def test_a_function_that_was_left_as_it_was_names_its_variables_or_all_of_them() -> None:
    why = Topology.ONE_REPLICA.at()
    assert [left.name for left in nothing_sharded("f", why).left_alone] == ["all variables"]
    named = nothing_sharded("f", why, ("w", "b"))
    assert [left.name for left in named.left_alone] == ["w", "b"] and named.share == 0.0
    assert named.headline.startswith(f"f: nothing sharded: w: {why.reason} (and 1 more)")


def test_where_nobody_asked_nothing_is_a_warning_or_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", logger="absl"):
        publish(nothing_to_shard("f", "it was exported"), options=None)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "it was exported" in caplog.text and len(reports()) == 1
    assert not is_refused([], ShardingOptions(on_refusal="raise"))
