"""Whatever elementwise program an update is, sharded it computes what it computes whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, example, given, settings

import tf_wu_shard
from tests.weight_update.rewrite.programs import PROGRAMS, Program, outcome, same_bits
from tf_wu_shard.config import ShardingOptions

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

G, W, M = ("leaf", "g"), ("leaf", "w"), ("leaf", "m")
MOMENTUM = Program(
    shape=(5, 29),
    replicas=3,
    writes=(
        ("m", "assign", ("AddV2", ("Mul", M, ("leaf", "scalar")), G)),
        ("w", "assign_sub", ("Mul", M, ("leaf", "one"))),
    ),
    looks=True,
    seed=1,
)


# The weight is read back and written again: its writes become one, which must not wait for itself.
WRITTEN_TWICE = Program(
    shape=(67,),
    replicas=2,
    writes=(
        ("m", "assign_add", G),
        ("w", "assign_sub", M),
        ("w", "assign", ("Tanh", W)),
    ),
    looks=False,
    seed=2,
)


@pytest.fixture(scope="module")
def strategies(logical_cpus: list[str]) -> Strategies:
    """One strategy for each number of replicas.

    They sum on one device: collectives of several sizes in one process fail in TensorFlow.
    """

    @cache
    def strategy(replicas: int) -> tf.distribute.MirroredStrategy:
        one_device = tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(logical_cpus[:replicas], cross_device_ops=one_device)

    return strategy


@pytest.fixture(autouse=True)
def _no_reports() -> None:
    tf_wu_shard.clear_reports()


def _differences(program: Program, strategy: tf.distribute.Strategy) -> list[str]:
    """The components that differ between the whole run and the sharded one."""
    options = ShardingOptions(min_elements=1)
    whole, sharded = outcome(program, strategy, None), outcome(program, strategy, options)
    return [
        f"{name} on replica {replica}"
        for name in whole
        for replica, (a, b) in enumerate(zip(whole[name], sharded[name], strict=True))
        if not same_bits(a, b)
    ]


@pytest.mark.parametrize("examples", [24, pytest.param(240, marks=pytest.mark.slow)])
def test_sharded_equals_whole_bit_for_bit(strategies: Strategies, examples: int) -> None:
    verdicts: list[str] = []

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        # To make a failure smaller would take minutes.
        phases=[Phase.explicit, Phase.generate],
    )
    @example(MOMENTUM)
    @example(WRITTEN_TWICE)
    @given(PROGRAMS)
    def check(program: Program) -> None:
        tf_wu_shard.clear_reports()
        assert _differences(program, strategies(program.replicas)) == []
        (report,) = tf_wu_shard.reports()
        # A refusal is an answer, a failure of the pass is not.
        assert not any("pass failed" in left.reason for left in report.left_alone)
        verdicts.append(report.verdict)

    check()
    # Had the pass refused them all, they would agree as well.
    assert verdicts.count("sharded") > len(verdicts) / 2


def test_momentum_is_sharded_with_its_slot(strategies: Strategies) -> None:
    outcome(MOMENTUM, strategies(3), ShardingOptions(min_elements=1))
    (report,) = tf_wu_shard.reports()
    assert [(v.name, v.slots) for v in report.variables] == [("w", ("m",))]
    assert report.emitted == {"reduce_scatter": 1, "all_gather": 1}
