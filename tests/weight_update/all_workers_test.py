"""What workers vote on is short, the same in every process, and another for another plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tests.weight_update.rewrite.stages import keras_step, run_stages
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.weight_update.all_workers import _digest

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

SHAPES = ((5, 40), (40,))


def adam(beta: float = 0.9) -> Callable[[], Any]:
    return lambda: keras.optimizers.Adam(0.1, beta_1=beta, name="adam")


def digest_of(
    strategy: tf.distribute.Strategy,
    optimizer: Callable[[], Any],
    shapes: tuple[tuple[int, ...], ...] = SHAPES,
    **options: Any,
) -> str:
    graph = keras_step(strategy, optimizer, shapes)
    stages = run_stages(graph, ShardingOptions(min_elements=1, **options))
    assert len(stages.plan.variables) == len(shapes)
    return _digest(stages.captured, stages.plan)


def test_numbers_in_names_have_no_part_in_the_digest(strategy_of: Strategies) -> None:
    """TensorFlow counts them in each process, whatever else was made there."""
    strategy = strategy_of(2)
    one, other = (run_stages(keras_step(strategy, adam(), SHAPES, first)) for first in (0, 7))
    assert {ref.key for ref in one.view.variables.values()}.isdisjoint(
        update.name for update in other.plan.updates
    )
    digest = _digest(one.captured, one.plan)
    assert digest == _digest(other.captured, other.plan)
    assert len(digest) == 16


def test_another_plan_constant_or_shape_has_another_digest(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    found = {
        digest_of(strategy, adam()),
        digest_of(strategy, adam(0.8)),
        digest_of(strategy, adam(), bucket_bytes=1),
        digest_of(strategy, adam(), ((5, 40), (41,))),
        digest_of(strategy, lambda: keras.optimizers.Lion(name="adam")),
        digest_of(strategy_of(3), adam()),
    }
    assert len(found) == 6
