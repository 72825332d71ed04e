"""Updates of several gradients, one of which is computed with what another has just changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.in_process import both

# Every one of two TPU cores gets a tile of a weight of this shape, and so does every replica.
_SHAPE = (24, 96)

Variables = Sequence[tf.Variable]
Step = Callable[[Variables, Variables, tf.Tensor], None]
StrategyOf = Callable[[int], tf.distribute.Strategy]


def _loss(weight: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.tanh(rows @ weight) ** 2)


def _gradients(weights: Sequence[Any], rows: tf.Tensor) -> list[tf.Tensor]:
    read = [tf.convert_to_tensor(weight) for weight in weights]
    with tf.GradientTape() as tape:
        tape.watch(read)
        loss = tf.add_n([_loss(weight, rows) for weight in read])
    gradients = tape.gradient(loss, read)
    summed: list[tf.Tensor] = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
    return summed


def at_the_slot(weights: Variables, slots: Variables, rows: tf.Tensor) -> None:
    """The second gradient is that at the weight and the slot that the first one has changed."""
    (first,) = _gradients(weights[:1], rows)
    slots[0].assign_add(0.1 * first)
    (second,) = _gradients([weights[0] + slots[0]], rows)
    weights[0].assign_sub(first * second)


def at_the_other_weight(weights: Variables, slots: Variables, rows: tf.Tensor) -> None:
    """The second weight takes both gradients, of which one is that at the first as updated."""
    del slots
    (first,) = _gradients(weights[:1], rows)
    weights[0].assign_sub(0.1 * first)
    (second,) = _gradients([weights[1] * weights[0]], rows)
    weights[1].assign_sub(0.1 * (second - first))


def after_the_slot(weights: Variables, slots: Variables, rows: tf.Tensor) -> None:
    """Nothing but its order makes the second gradient come after the slot's write."""
    (first,) = _gradients(weights[:1], rows)
    with tf.control_dependencies([slots[0].assign(0.9 * slots[0] + first)]):
        rows = tf.identity(rows)
    (second,) = _gradients(weights[1:], rows)
    weights[1].assign_sub(0.1 * second)
    weights[0].assign_sub(0.1 * slots[0] * tf.sign(first) + 0.001 * second)


def by_the_slots_of_each_other(weights: Variables, slots: Variables, rows: tf.Tensor) -> None:
    """No gradient waits, but each weight needs a slot that the other's update has changed."""
    one, other = _gradients(weights, rows)
    slots[0].assign(0.9 * slots[0] + one)
    scale = tf.linalg.matmul(slots[0], slots[0], transpose_b=True)[0, 0]
    slots[1].assign(0.9 * slots[1] + other * scale)
    weights[1].assign_sub(slots[1])
    weights[0].assign_sub(0.1 * slots[0] * tf.sort(slots[1], 0)[0, 0])


def _check(
    strategy: tf.distribute.Strategy, update: Step, aggregation: tf.VariableAggregation
) -> None:
    def train() -> list[tf.Variable]:
        start = np.random.default_rng(0)
        with strategy.scope():
            weights, slots = (
                [
                    tf.Variable(
                        scale * start.normal(size=_SHAPE).astype(np.float32),
                        trainable=scale > 0,
                        aggregation=aggregation,
                        name=f"{name}{number}",
                    )
                    for number in range(2)
                ]
                for name, scale in (("weight", 0.3), ("slot", 0.0))
            )

        @tf.function(autograph=False)
        def step() -> None:
            def replica() -> None:
                context = tf.distribute.get_replica_context()
                assert context is not None, "a step runs on replicas"
                number = tf.cast(context.replica_id_in_sync_group, tf.float32)
                rows = tf.reshape(tf.range(4.0 * _SHAPE[0]) / 48.0 - 1.0, (4, _SHAPE[0]))
                update(weights, slots, rows + 0.1 * number)

            strategy.run(replica)

        for _ in range(2):
            step()
        return [*weights, *slots]

    runs = both(train)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded", str(runs.reports[-1])


_UPDATES = (at_the_slot, at_the_other_weight, after_the_slot, by_the_slots_of_each_other)


@pytest.mark.parametrize("update", _UPDATES, ids=lambda update: str(update.__name__))
@pytest.mark.parametrize("place", ["strategy_of", "emulated"])
def test_gradients_that_wait_for_what_others_change_travel_apart(
    place: str, update: Step, request: pytest.FixtureRequest
) -> None:
    strategy_of: StrategyOf = request.getfixturevalue(place)
    _check(strategy_of(2), update, tf.VariableAggregation.NONE)


@pytest.mark.parametrize("aggregation", ["MEAN", "SUM"])
def test_what_variables_add_up_themselves_is_a_gradient_each(
    aggregation: str, strategy_of: StrategyOf
) -> None:
    """What every replica writes to the slot is summed, and then what it makes of that is."""

    def update(weights: Variables, slots: Variables, rows: tf.Tensor) -> None:
        for weight, slot in zip(weights, slots, strict=True):
            with tf.GradientTape() as tape:
                loss = _loss(tf.convert_to_tensor(weight), rows)
            slot.assign(0.9 * slot + tape.gradient(loss, weight))
            weight.assign_sub(0.05 * slot)

    _check(strategy_of(2), update, tf.VariableAggregation[aggregation])
