"""Updates written by hand, in an order of their own: what must wait for what still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, example, given, settings

from tests.equivalence.in_process import StrategyOf, both, examples
from tests.equivalence.ordered_steps import ORDERED_STEPS, OrderedStep, trained

# Everything is averaged once all weights are written, then all weights become their averages.
OVERWRITTEN = OrderedStep(
    weights=2,
    averages=2,
    small=True,
    instructions=(
        *(("write", "assign_sub", 0, 0), ("write", "assign_sub", 1, 1), ("small", 0)),
        ("wait", [0, 1, 2]),
        *(("value", "average", 4, 2), ("value", "average", 6, 4)),
        *(("write", "assign", 4, 2), ("write", "assign", 5, 3)),
        *(("value", "sum", 6, 0), ("value", "sum", 8, 1)),
        *(("write", "assign", 0, 4), ("write", "assign", 1, 5)),
    ),
)

# Each round of writes waits for the one before it.
ROUNDS = OrderedStep(
    weights=3,
    averages=0,
    small=False,
    instructions=tuple(
        instruction
        for turn in range(3)
        for instruction in (
            *(("write", "assign_sub", weight, weight) for weight in range(3)),
            ("wait", [3 * turn, 3 * turn + 1, 3 * turn + 2]),
        )
    ),
)


# One weight is written after another: they cannot be put together at the same time.
ONE_AFTER_THE_OTHER = OrderedStep(
    weights=2,
    averages=0,
    small=False,
    instructions=(("write", "assign_sub", 0, 0), ("wait", [0]), ("write", "assign_sub", 1, 1)),
)


@pytest.fixture
def _sums_as_written() -> Iterator[None]:
    # Grappler adds the terms of a sum in another order where it sees more of the graph.
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    yield
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": None})


@pytest.mark.usefixtures("_sums_as_written")
@pytest.mark.parametrize("dialect", ["mirrored", "collective", "tpu"])
@pytest.mark.parametrize("count", [8, pytest.param(400, marks=pytest.mark.slow)])
def test_any_order_of_writes_is_kept(
    strategy_of: StrategyOf, emulated: Callable[[int], Any], dialect: str, count: int
) -> None:
    strategy = emulated(2) if dialect == "tpu" else strategy_of(2)
    by = {"dialect": "collective"} if dialect == "collective" else {}
    verdicts: list[str] = []

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        # To make a failure smaller would take minutes.
        phases=[Phase.explicit, Phase.generate],
    )
    @example(OVERWRITTEN)
    @example(ROUNDS)
    @example(ONE_AFTER_THE_OTHER)
    @given(ORDERED_STEPS)
    def check(step: OrderedStep) -> None:
        runs = both(lambda: trained(step, strategy), min_elements=16, **by)
        assert runs.apart == []
        for report in runs.reports:
            # A refusal is an answer, a failure of the pass is not.
            assert not any("pass failed" in left.reason for left in report.left_alone)
            verdicts.append(report.verdict)

    check()
    # Had the pass refused them all, they would agree as well.
    assert verdicts.count("nothing sharded") < len(verdicts) / 2


def test_a_constant_made_between_two_writes_enters_the_second(strategy_of: StrategyOf) -> None:
    # It waits for the first write; sharded, there is but one, which it must not wait for.
    def train() -> list[tf.Variable]:
        strategy = strategy_of(2)
        with strategy.scope():
            weight = tf.Variable(tf.ones([6, 4]))
        inputs = tf.constant(examples(4)[0])

        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(inputs @ weight))
            gradient = tape.gradient(loss, weight)
            total = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
            with tf.control_dependencies([weight.assign_sub(0.1 * total)]):
                weight.assign(weight * (1.0 - tf.sqrt(tf.constant(0.01))))

        step = tf.function(lambda: strategy.run(replica))
        for _ in range(3):
            step()
        return [weight]

    runs = both(train)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded"


def test_an_update_written_by_hand_in_the_replicas(strategy_of: StrategyOf) -> None:
    # Summed in a replica, a gradient comes out of an IdentityN that also hands on what went in.
    def train() -> list[tf.Variable]:
        strategy = strategy_of(2)
        with strategy.scope():
            weight = tf.Variable(tf.ones([6, 4]))
            slot = tf.Variable(tf.zeros([6, 4]), trainable=False)
        inputs = tf.constant(examples(4)[0])

        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(inputs @ weight))
            gradient = tape.gradient(loss, weight)
            context = tf.distribute.get_replica_context()
            slot.assign(0.5 * slot + context.all_reduce("MEAN", gradient))
            weight.assign_sub(0.1 * slot)

        step = tf.function(lambda: strategy.run(replica))
        for _ in range(3):
            step()
        return [weight, slot]

    runs = both(train)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded"
