"""Passes by their flags: a wrong one is one clear error, and what fails is not hidden."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import OptionError, WuShardError, passes
from tf_wu_shard.step.edit import StepEdit
from tf_wu_shard.step.step import Step


class Doing:
    """A pass that does what it is given."""

    def __init__(self, flag: Any, work: Callable[[Step], Step] = lambda step: step) -> None:
        self.flag = flag
        self._work = work

    def parse(self, value: object) -> object | None:
        """Whatever is true is on."""
        return value or None

    def apply(self, step: Step, options: object) -> Step:
        """Does it."""
        return self._work(step)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(passes, "_registered", {})
    yield
    tf.config.optimizer.set_experimental_options(
        {"first": False, "second": False, "weight_update_sharding": False}
    )


def trained(strategy: tf.distribute.Strategy) -> None:
    """Takes one step that sums a gradient."""
    with strategy.scope():
        weight = tf.Variable(tf.ones((8,)))

    def replica() -> None:
        context = tf.distribute.get_replica_context()
        weight.assign_sub(context.all_reduce("SUM", tf.tanh(weight)))

    tf.function(lambda: strategy.run(replica), autograph=False)()


def reading_a_sum(step: Step) -> StepEdit:
    """One more op in a step, which must run."""
    edit = StepEdit(step)
    edit.must_run(edit.at(0, "first").flat(step.reductions[0].results[0], "read"))
    return edit


def test_passes_see_a_step_in_the_order_in_which_they_were_registered(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    seen: list[str] = []

    def noting(flag: str) -> Callable[[Step], Step]:
        def work(step: Step) -> Step:
            assert step.replicas.total == 2 and len(step.reductions) == 1
            seen.append(flag)
            return step

        return work

    for flag in ("second", "first"):
        tf_wu_shard.register_pass(Doing(flag, noting(flag)))
    tf.config.optimizer.set_experimental_options({"first": 1, "second": 1})
    trained(strategy_of(2))
    assert seen == ["second", "first"]


def test_the_report_names_a_pass_that_says_nothing(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    tf_wu_shard.register_pass(Doing("first", lambda step: reading_a_sum(step).done()))
    tf_wu_shard.register_pass(Doing("second"))
    tf.config.optimizer.set_experimental_options({"first": 1, "second": 1})
    tf_wu_shard.clear_reports()
    trained(strategy_of(2))
    (report,) = tf_wu_shard.reports()
    assert report.changes == {"first": "the step is changed"}
    assert (
        "changed by first (the step is changed): nothing sharded: weight_update_sharding is off"
        in report.headline
    )


def test_a_changed_function_with_nothing_to_shard_is_no_refusal(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    """As an evaluation that sums its loss."""

    def working(step: Step) -> Step:
        edit = reading_a_sum(step)
        edit.report("first", "the sum\nis read twice")
        return edit.done()

    tf_wu_shard.register_pass(Doing("first", working))
    strict = tf_wu_shard.ShardingOptions(on_refusal="raise")
    tf.config.optimizer.set_experimental_options({"first": 1, "weight_update_sharding": strict})
    tf_wu_shard.clear_reports()
    strategy = strategy_of(2)
    with strategy.scope():
        weight, seen = tf.Variable(tf.ones((8,))), tf.Variable(0.0, trainable=False)

    def replica() -> tf.Tensor:
        seen.assign_add(1.0)
        loss = tf.reduce_sum(tf.tanh(weight))
        return tf.distribute.get_replica_context().all_reduce("SUM", loss)

    tf.function(lambda: strategy.run(replica), autograph=False)()
    (report,) = tf_wu_shard.reports()
    assert json.loads(report.to_json())["changes"] == {"first": "the sum is read twice"}
    assert report.headline.endswith("nothing sharded: it has nothing of its own to shard")


def test_a_pass_that_returns_nothing_is_named(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    tf_wu_shard.register_pass(Doing("first", lambda step: None))  # type: ignore[arg-type, return-value]
    tf.config.optimizer.set_experimental_options({"first": 1})
    with pytest.raises(WuShardError, match="asked for by first: it returned no step"):
        trained(strategy_of(2))


def test_a_pass_that_fails_ends_the_trace_and_is_named(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    def failing(step: Step) -> Step:
        raise ValueError("no such gradient")

    tf_wu_shard.register_pass(Doing("first", failing))
    tf.config.optimizer.set_experimental_options({"first": 1})
    with pytest.raises(WuShardError, match="as asked for by first: no such gradient; switch that"):
        trained(strategy_of(2))


@pytest.mark.parametrize("flag", ["weight_update_sharding", "remapping", "", "two words", 3])
def test_a_flag_that_is_taken_or_no_word_is_refused(flag: Any) -> None:
    with pytest.raises(OptionError, match=r"give the pass another|must be a word|TensorFlow's own"):
        tf_wu_shard.register_pass(Doing(flag))
    assert passes.switched_on() == []
