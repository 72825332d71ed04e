"""Functions that read a slot: traced before it was sharded, or after, in any place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import StrategyOf, compiled, in_shards, step_of, turn_on


def _momentum(model: keras.Model) -> tf.Variable:
    """The slot of the first kernel, shape [6, 7]."""
    (slot,) = [v for v in model.optimizer.variables if v.shape == (6, 7)]
    return slot.value


def _model(strategy: tf.distribute.Strategy) -> keras.Model:
    return compiled(strategy, optimizer=lambda: keras.optimizers.SGD(0.1, momentum=0.9), built=True)


@pytest.mark.parametrize("ground", ["collectives", "sums on one device"])
def test_a_slot_that_an_earlier_function_captured_stays_whole(
    strategy_of: StrategyOf, summing_strategy_of: StrategyOf, ground: str
) -> None:
    strategy = strategy_of(2) if ground == "collectives" else summing_strategy_of(4)
    model = _model(strategy)
    slot = _momentum(model)

    @tf.function
    def total_of_slot() -> tf.Tensor:
        return tf.reduce_sum(slot)

    assert float(total_of_slot()) == 0.0
    turn_on()
    step = step_of(strategy, model)
    for _ in range(3):
        step()
        assert float(total_of_slot()) == float(tf.reduce_sum(slot)) != 0.0
    assert not in_shards(slot)
    (report,) = tf_wu_shard.reports()
    (left,) = report.left_alone
    assert "total_of_slot" in left.reason and "traced before" in left.reason
    assert len(report.variables) == 3
    assert sum(in_shards(variable) for variable in model.optimizer.variables) == 3


def _direct(slot: tf.Variable) -> tf.Tensor:
    return slot.value()


def _in_a_branch(slot: tf.Variable) -> tf.Tensor:
    positive = tf.random.uniform([]) >= 0
    return tf.cond(positive, lambda: slot * 1.0, lambda: tf.zeros([6, 7]))


def _in_the_predicate_and_the_branch(slot: tf.Variable) -> tf.Tensor:
    return tf.cond(tf.reduce_sum(slot) != 0.0, lambda: slot * 1.0, lambda: tf.zeros([6, 7]))


def _in_a_loop(slot: tf.Variable) -> tf.Tensor:
    _, last = tf.while_loop(
        lambda i, _: i < 3, lambda i, _: (i + 1, slot + 0.0), (0, tf.zeros([6, 7]))
    )
    return last


def _in_the_condition_of_a_loop(slot: tf.Variable) -> tf.Tensor:
    counted, _ = tf.while_loop(
        lambda i, _: i < tf.reduce_sum(tf.abs(slot)) * 10,
        lambda i, last: (i + 1, last),
        (0.0, 0.0),
    )
    return counted


def _in_a_nested_function(slot: tf.Variable) -> tf.Tensor:
    inner = tf.function(lambda: slot * 2.0)
    return tf.function(lambda: inner() / 2.0)()


def _in_a_dataset(slot: tf.Variable) -> tf.Tensor:
    dataset = tf.data.Dataset.range(2).map(lambda x: slot * tf.cast(x + 1, tf.float32))
    return next(iter(dataset))


def _by_gathering_rows(slot: tf.Variable) -> tf.Tensor:
    return tf.gather(slot, [0, 5, 3])


READERS = (
    *(
        _direct,
        _in_a_branch,
        _in_the_predicate_and_the_branch,
        _in_a_loop,
        _in_the_condition_of_a_loop,
        _in_a_nested_function,
    ),
    *(_in_a_dataset, _by_gathering_rows),
)


@pytest.mark.parametrize("reader", READERS, ids=lambda one: one.__name__)
def test_a_function_traced_later_reads_the_gathered_slot(
    summing_strategy_of: StrategyOf, reader: Callable[[Any], tf.Tensor]
) -> None:
    strategy = summing_strategy_of(4)
    model = _model(strategy)
    slot = _momentum(model)
    turn_on()
    step = step_of(strategy, model)
    step()
    assert in_shards(slot)
    read = (lambda: reader(slot)) if reader is _in_a_dataset else tf.function(lambda: reader(slot))
    for _ in range(2):
        step()
        whole = tf.constant(slot.numpy())
        assert np.count_nonzero(whole) > 30
        expected = reader(tf.Variable(whole))
        np.testing.assert_array_equal(read(), expected)


def test_a_function_that_reads_and_trains_sees_the_slot_of_its_moment(
    strategy_of: StrategyOf,
) -> None:
    strategy = strategy_of(2)

    def trained(on: bool) -> list[np.ndarray]:
        keras.utils.set_random_seed(5)
        model = _model(strategy)
        slot = _momentum(model)
        if on:
            turn_on()
        step = step_of(strategy, model)
        step()

        @tf.function
        def between() -> tuple[tf.Tensor, tf.Tensor]:
            before = tf.identity(slot)
            step()
            return before, tf.identity(slot)

        return [value.numpy() for value in between()]

    unsharded, sharded = trained(on=False), trained(on=True)
    assert (unsharded[0] != unsharded[1]).any()
    for one, other in zip(unsharded, sharded, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_function_that_trains_and_calls_a_reader_keeps_their_order(
    strategy_of: StrategyOf,
) -> None:
    strategy = strategy_of(2)

    def trained(on: bool) -> list[np.ndarray]:
        keras.utils.set_random_seed(5)
        model = _model(strategy)
        slot = _momentum(model)
        if on:
            turn_on()
        inline = step_of(strategy, model).python_function
        step_of(strategy, model)()
        reader = tf.function(lambda: slot * 1.0)

        @tf.function
        def around() -> tuple[tf.Tensor, tf.Tensor]:
            before = reader()
            inline()
            return before, reader()

        return [value.numpy() for _ in range(5) for value in around()] + [slot.numpy()]

    unsharded, sharded = trained(on=False), trained(on=True)
    assert (unsharded[0] != unsharded[1]).any()
    for one, other in zip(unsharded, sharded, strict=True):
        assert one.tobytes() == other.tobytes()
    report = tf_wu_shard.reports()[-1]
    (left,) = report.left_alone
    assert left.reason.endswith("is also used by a function that this one calls")
    assert len(report.variables) == 3


def test_readers_of_copies_wait_for_a_tpus_steps_though_slots_share_a_name(
    emulated: Callable[[int], tf.distribute.TPUStrategy],
) -> None:
    strategy = emulated(2)
    with strategy.scope():
        weights = [tf.Variable(tf.ones((64, 128)) * scale) for scale in (1.0, 2.0)]
        slots = [tf.Variable(tf.zeros((64, 128)), trainable=False) for _ in weights]
    assert {slot.name for slot in slots} == {"Variable:0"}

    def replica() -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.square(weight)) for weight in weights])
        gradients = tape.gradient(loss, weights)
        totals = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
        for weight, slot, total in zip(weights, slots, totals, strict=True):
            slot.assign(0.9 * slot + total)
            weight.assign_sub(0.01 * slot)

    def reader_of(slot: Any) -> Callable[[], tf.Tensor]:
        copies = slot.values
        return tf.function(lambda: tf.stack([tf.reduce_sum(copy) for copy in copies]))

    @tf.function
    def step() -> None:
        strategy.run(replica)

    turn_on()
    step()
    assert all(map(in_shards, slots))
    # Each is a call of its own: TensorFlow knows the shards that they read by other handles than
    # those that the step writes.
    readers = [reader_of(slot) for slot in slots]

    def trained() -> tf.Tensor:
        found = []
        for _ in range(4):
            step()
            found += [reader() for reader in readers]
        return tf.stack(found)

    start = [variable.numpy() for variable in (*weights, *slots)]
    one_by_one = trained().numpy()
    for variable, value in zip((*weights, *slots), start, strict=True):
        variable.assign(value)
    assert tf.function(trained)().numpy().tobytes() == one_by_one.tobytes()
    assert len(np.unique(one_by_one)) == 8
