"""Nothing is seen of a batch that only stands in; what could be seen of one is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.partial_sums.late_training import SHAPE, LateTraining
from tf_wu_shard import WuShardError
from tf_wu_shard.partial_sums.options import FLAG

Strategies = Callable[..., tf.distribute.Strategy]

FEATURES, CLASSES, BATCH = 8, 4, 3


def late_batches(late: list[tuple[int, int]], seed: int = 0) -> tf.data.Dataset:
    """A batch for two replicas for each pair of numbers; stand-ins are of absurd size."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((len(late), 2 * BATCH, FEATURES)).astype(np.float32)
    y = random.integers(0, CLASSES, (len(late), 2 * BATCH))
    codes = np.repeat(np.asarray(late, np.int32), BATCH, axis=1)
    x[codes & 2 != 0] *= 1e3
    data = tf.data.Dataset.from_tensor_slices(((x, y), codes))
    return data.map(tf_wu_shard.with_lateness)


def a_model(strategy: tf.distribute.Strategy) -> keras.Model:
    """One with statistics, dropout and metrics."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = keras.layers
        model = keras.Sequential(
            [
                *(keras.Input((FEATURES,)), layers.Dense(16), layers.BatchNormalization()),
                *(layers.Dropout(0.5), layers.Dense(CLASSES)),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def every_component(model: keras.Model) -> dict[str, list[np.ndarray]]:
    """What each replica has of statistics, random states and metrics."""
    held = [*model.non_trainable_variables, *model.metrics_variables]
    return {one.path: [own.numpy() for own in one.value.values] for one in held}


def test_fit_sees_nothing_of_stand_ins(strategy: Any) -> None:
    tf.config.optimizer.set_experimental_options({FLAG: True})
    model = a_model(strategy)
    model.fit(late_batches([(0, 0), (0, 0)]), verbose=0)
    before = every_component(model)
    weights = [weight.numpy() for weight in model.trainable_variables]
    data = late_batches([(3, 3)], seed=1)
    # As `fit` goes on, which would reset the metrics first.
    model.train_function(iter(strategy.experimental_distribute_dataset(data)))
    after = every_component(model)
    assert len(before) >= 7
    for path, own in before.items():
        for one, other in zip(own, after[path], strict=True):
            np.testing.assert_array_equal(one, other, err_msg=path)
    # Adam goes on by its momentum, as it does where a gradient is zero.
    moved = zip(model.trainable_variables, weights, strict=True)
    assert any((weight.numpy() != old).any() for weight, old in moved)


def test_one_replica_alone_has_no_batch(strategy: Any) -> None:
    tf.config.optimizer.set_experimental_options({FLAG: True})
    model = a_model(strategy)
    model.fit(late_batches([(0, 0), (0, 3), (3, 0), (0, 3)]), verbose=0)
    counts = [m for m in model.metrics_variables if m.path.endswith("count")]
    assert counts
    for count in counts:
        assert [float(own) for own in count.value.values] == [3 * BATCH, 2 * BATCH]


def test_a_loss_that_a_step_returns_is_the_last_of_a_real_batch(strategy: Any) -> None:
    gradients = np.ones((4, 2, *SHAPE), np.float32)
    gradients[2] = 7.0
    late = np.array([(0, 0), (0, 0), (3, 0), (0, 0)], np.int32)
    trained = LateTraining(strategy)
    given = [strategy.experimental_local_results(one) for one in trained.run(gradients, late)]
    losses = [[float(own) for own in one] for one in given]
    assert losses[2][0] == losses[1][0] != losses[2][1]
    assert losses[3][0] == losses[3][1]


def test_two_steps_on_the_same_weights_give_what_each_gave(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)

    def with_two_losses(step: Refused, batch: tf.Tensor) -> tf.Tensor:
        step.weight.assign_sub(summed(step.gradient_of(batch)))
        return tf.reduce_sum(batch) * [1.0, 2.0]

    step = Refused(strategy, with_two_losses)
    gradients = np.ones((1, 2, *SHAPE), np.float32)
    step.run(gradients, np.zeros((1, 2), np.int32))
    # Another function, which returns one number.
    step.replica = lambda batch: LateTraining.replica(step, batch)  # type: ignore[method-assign]
    step.trace_anew(another=True)
    (first,) = step.run(gradients, np.zeros((1, 2), np.int32))
    (second,) = step.run(9.0 * gradients, np.full((1, 2), 3, np.int32))
    given = [
        [float(own) for own in strategy.experimental_local_results(o)] for o in (first, second)
    ]
    assert given[0] == given[1]


class Refused(LateTraining):
    """A step that cannot let gradients be late."""

    def __init__(self, strategy: Any, replica: Callable[[Refused, tf.Tensor], Any]) -> None:
        super().__init__(strategy)
        self._does = replica
        with strategy.scope():
            self.other = tf.Variable(tf.zeros((8,)), name="other")
            self.seen = tf.Variable(
                0.0, False, name="seen", aggregation=tf.VariableAggregation.MEAN
            )

    def replica(self, batch: tf.Tensor) -> Any:
        return self._does(self, batch)

    def gradient_of(self, batch: tf.Tensor) -> tf.Tensor:
        """The replica's own."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.weight * batch[0])
        return tape.gradient(loss, self.weight)


def summed(value: tf.Tensor) -> Any:
    """A sum over the replicas."""
    return tf.distribute.get_replica_context().all_reduce("SUM", value)


def clipped_by_a_global_norm(step: Refused, batch: tf.Tensor) -> None:
    """Both weights' gradients enter both updates."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(step.weight * batch[0]) + tf.reduce_sum(step.other)
    own = tape.gradient(loss, [step.weight, step.other])
    clipped, _ = tf.clip_by_global_norm([summed(one) for one in own], 1.0)
    step.weight.assign_sub(clipped[0])
    step.other.assign_sub(clipped[1])


def divided_by_a_count(step: Refused, batch: tf.Tensor) -> None:
    """As by a number of tokens."""
    count = summed(tf.reduce_sum(tf.abs(batch)))
    step.weight.assign_sub(summed(step.gradient_of(batch)) / count)


def of_a_sum(step: Refused, batch: tf.Tensor) -> None:
    """As by statistics of all replicas' batches."""
    step.weight.assign_sub(summed(step.gradient_of(batch) * summed(tf.reduce_mean(batch))))


def updated_twice(step: Refused, batch: tf.Tensor) -> None:
    """The second gradient follows from the first update."""
    first = summed(step.gradient_of(batch))
    step.weight.assign_sub(first)
    step.other.assign_sub(summed(step.other + tf.reduce_sum(first) * batch[0, 0, :8]))


def summed_twice(step: Refused, batch: tf.Tensor) -> None:
    """Two gradients of one weight."""
    step.weight.assign_sub(summed(step.gradient_of(batch)))
    step.weight.assign_sub(summed(2.0 * step.gradient_of(batch)))


def averaged(step: Refused, batch: tf.Tensor) -> None:
    """A statistic that all replicas share."""
    step.weight.assign_sub(summed(step.gradient_of(batch)))
    step.seen.assign(summed(tf.reduce_mean(batch)))


def drawing(step: Refused, batch: tf.Tensor) -> None:
    """From a kernel that counts by itself how much it drew."""
    noise = tf.raw_ops.RandomStandardNormal(shape=SHAPE, dtype=tf.float32)
    step.weight.assign_sub(summed(step.gradient_of(batch * noise)))


def with_some_of_its_own(step: Refused, batch: tf.Tensor) -> None:
    """An update that no two replicas do alike."""
    step.weight.assign_sub(summed(step.gradient_of(batch)) + batch[0])


def returning_every_example(step: Refused, batch: tf.Tensor) -> tf.Tensor:
    """Of a shape that only the run knows."""
    step.weight.assign_sub(summed(step.gradient_of(batch)))
    return tf.boolean_mask(batch, batch > 0.0)


REFUSED: dict[Callable[[Refused, tf.Tensor], Any], str] = {
    clipped_by_a_global_norm: "takes the gradients of 2 weights, such as other and weight",
    divided_by_a_count: "the update of weight takes another sum over the replicas",
    of_a_sum: "the gradient of weight is made of what replicas put together before",
    updated_twice: "the gradient of other follows from another update of the same step",
    summed_twice: "weight has 2 gradients that are summed in one step",
    averaged: "seen is written with what several replicas have",
    drawing: "RandomStandardNormal; draw with a seed of keras.random",
    with_some_of_its_own: "the update of weight takes what a replica has of its own batch",
    returning_every_example: "has a shape that differs from step to step",
}


@pytest.mark.parametrize("replica", REFUSED, ids=lambda one: one.__name__)
def test_what_cannot_be_held_back_is_named(
    strategy_of: Strategies, replica: Callable[[Refused, tf.Tensor], Any]
) -> None:
    step = Refused(strategy_of(2), replica)
    late = np.zeros((1, 2), np.int32)
    with pytest.raises(WuShardError, match=f"asked for by {FLAG}: .*{REFUSED[replica]}"):
        step.run(np.ones((1, 2, *SHAPE), np.float32), late)


def test_a_generator_moves_on_for_real_batches_alone(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        generator = tf.random.Generator.from_seed(1)

    def replica(step: Refused, batch: tf.Tensor) -> None:
        noise = generator.normal(SHAPE)
        step.weight.assign_sub(summed(step.gradient_of(batch * noise)))

    step = Refused(strategy, replica)
    start = [own.numpy() for own in generator.state.values]
    late = np.array([(0, 3), (3, 3), (0, 3)], np.int32)
    step.run(np.ones((3, 2, *SHAPE), np.float32), late)
    first, second = (own.numpy() for own in generator.state.values)
    assert (first != start[0]).any() and (second == start[1]).all()


@pytest.mark.parametrize("outer", [False, True])
def test_a_replicas_program_may_be_a_function(strategy: Any, outer: bool) -> None:
    gradients = np.ones((3, 2, *SHAPE), np.float32)
    late = np.array([(0, 0), (0, 3), (0, 0)], np.int32)
    wanted = LateTraining(strategy)
    wanted.run(gradients, late)
    found = LateTraining(strategy)
    found.run_as_a_function(outer=outer)
    found.run(gradients, late)
    np.testing.assert_array_equal(found.weight.numpy(), wanted.weight.numpy())


def test_a_step_whose_batches_are_never_late_says_so(strategy_of: Strategies) -> None:
    trained = LateTraining(strategy_of(2))
    trained.run(np.ones((1, 2, *SHAPE), np.float32), None)
    (report,) = tf_wu_shard.reports()
    assert "no gradient is ever late: its batches come from no deadline_dataset" in report.headline


@pytest.mark.parametrize("run", ["fit", "evaluate", "predict"])
def test_stand_ins_are_never_taken_for_real_batches(strategy_of: Strategies, run: str) -> None:
    """Of a fit with its flag off, and of what trains nothing."""
    model = a_model(strategy_of(2))
    tf.config.optimizer.set_experimental_options({FLAG: run != "fit"})
    with pytest.raises(WuShardError, match="gets batches from a deadline_dataset"):
        getattr(model, run)(late_batches([(0, 0)]), verbose=0)


def test_who_steps_outside_of_functions_is_told_that_nothing_is_changed(
    strategy_of: Strategies, caplog: pytest.LogCaptureFixture
) -> None:
    model = a_model(strategy_of(2))
    model.run_eagerly = True
    tf.config.optimizer.set_experimental_options({FLAG: True})
    batches = late_batches([(0, 0)]).map(lambda inputs, targets: (inputs.value, targets))
    model.fit(batches, verbose=0)
    assert f"outside of any tf.function, and {FLAG} changes nothing" in caplog.text


def test_stand_ins_are_not_trained_on_outside_of_functions(strategy_of: Strategies) -> None:
    model = a_model(strategy_of(2))
    model.run_eagerly = True
    tf.config.optimizer.set_experimental_options({FLAG: True})
    with pytest.raises(WuShardError, match=r"a step outside of tf\.function"):
        model.fit(late_batches([(0, 0)]), verbose=0)
