"""What a TPU program may hold besides a plain update: branches, loops, functions that it calls.

Each scenario trains a small net and returns the variables to compare and other numbers.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.in_process import dense_model
from tests.equivalence.net import INPUTS, TARGETS, WIDTH, Net, repeated

Optimizer = Callable[[], keras.optimizers.Optimizer]


@dataclasses.dataclass(frozen=True)
class Left:
    """What a scenario leaves.

    Attributes:
        variables: To compare, weights and slots.
        seen: Numbers that steps returned.
    """

    variables: Sequence[Any]
    seen: Sequence[Any] = ()


Scenario = Callable[[tf.distribute.Strategy], Left]


def adam(**keywords: Any) -> Optimizer:
    return lambda: keras.optimizers.Adam(0.01, **keywords)


def scaled(**keywords: Any) -> Optimizer:
    return lambda: keras.optimizers.LossScaleOptimizer(
        adam(**keywords)(), initial_scale=8.0, dynamic_growth_steps=2
    )


def accumulated(strategy: tf.distribute.Strategy) -> Left:
    net = Net(strategy, adam(gradient_accumulation_steps=2))
    return Left(net.state, net.run(net.train, 5))


def averaged(strategy: tf.distribute.Strategy) -> Left:
    """Weights are set to their moving average in a branch of their own."""
    average = {"use_ema": True, "ema_overwrite_frequency": 2}
    net = Net(strategy, adam(gradient_accumulation_steps=2, **average))
    return Left(net.state, net.run(net.train, 5))


def overflowing(strategy: tf.distribute.Strategy) -> Left:
    """A step whose gradients are not finite is skipped."""
    net = Net(strategy, scaled(gradient_accumulation_steps=2))
    seen = net.run(net.train, 3)
    seen += net.run(net.train, 1, INPUTS * np.float32(1e30))
    return Left(net.state, seen + net.run(net.train, 2))


def overflowing_on_one(strategy: tf.distribute.Strategy) -> Left:
    """The gradients of one replica alone are not finite: all skip the step."""
    net = Net(strategy, scaled())
    seen = net.run(net.train, 2)
    rows = INPUTS.copy()
    rows[:4] *= np.float32(1e30)
    seen += net.run(net.train, 1, rows)
    return Left(net.state, seen + net.run(net.train, 2))


def looped(strategy: tf.distribute.Strategy) -> Left:
    net = Net(strategy, adam(gradient_accumulation_steps=2))

    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for turn in tf.range(9):
            loss = net.train(rows, wanted)
            if turn >= 2:
                break
        return loss

    return Left(net.state, net.run(replica, 2))


def branched(strategy: tf.distribute.Strategy) -> Left:
    """Weights move into shards first; one branch trains them, one reads them, one does both."""
    net = Net(strategy, adam())
    seen = net.run(net.train, 1)

    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        net.count.assign_add(1)
        branches = [
            lambda: net.train(rows, wanted),
            lambda: tf.reduce_sum(net.forward(rows)),
            lambda: net.train(rows * 2.0, wanted) + tf.reduce_sum(net.weights[0]),
        ]
        return tf.switch_case(net.count % 3, branches) + tf.reduce_sum(net.weights[0] ** 2)

    return Left(net.state, seen + net.run(replica, 4))


def adversarial(strategy: tf.distribute.Strategy) -> Left:
    """Two nets that accumulate, each reading the other after its update."""
    one = Net(strategy, adam(gradient_accumulation_steps=2))
    other = Net(
        strategy, adam(gradient_accumulation_steps=2), lambda: dense_model(WIDTH, 64, WIDTH)
    )

    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            first = tf.reduce_mean((one.forward(other.forward(rows)) - wanted) ** 2)
        one.apply(tape.gradient(first, one.weights))
        with tf.GradientTape() as tape:
            second = tf.reduce_mean(one.forward(other.forward(rows)) ** 2)
        other.apply(tape.gradient(second, other.weights))
        return first + second + tf.reduce_sum(one.forward(other.forward(rows)))

    return Left([*one.state, *other.state], one.run(replica, 4))


def called(strategy: tf.distribute.Strategy) -> Left:
    """Functions within functions, one of which changes what the next one reads."""
    net = Net(strategy, adam(gradient_accumulation_steps=2))
    with strategy.scope():
        total = tf.Variable(0.0, trainable=False)
    forward, apply = tf.function(net.forward), tf.function(net.apply)

    @tf.function
    def look() -> tf.Tensor:
        total.assign(total * 0.5 + tf.reduce_sum(net.weights[0]))
        return total.read_value()

    @tf.function
    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((forward(rows) - wanted) ** 2)
        apply(tape.gradient(loss, net.weights))
        return loss + look() + look()

    return Left([*net.state, total], net.run(repeated(replica, 2), 2))


def handed_a_slot(strategy: tf.distribute.Strategy) -> Left:
    """The update is computed by a function that is handed the slot itself, not its value."""
    net = Net(strategy, adam())
    with strategy.scope():
        slots = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in net.weights]

    @tf.function
    def ahead(slot: tf.Variable, total: tf.Tensor) -> tf.Tensor:
        return slot * 0.9 + total

    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net.forward(rows) - wanted) ** 2)
        totals = tf.distribute.get_replica_context().all_reduce(
            "SUM", tape.gradient(loss, net.weights)
        )
        for weight, slot, total in zip(net.weights, slots, totals, strict=True):
            slot.assign(ahead(slot, total))
            weight.assign_sub(ahead(slot, total) * 0.01)
        return loss

    return Left([*net.weights, *slots], net.run(replica, 3))


def own_factor(strategy: tf.distribute.Strategy) -> Left:
    """What each replica carries through the loop on its own keeps the update whole."""
    net = Net(strategy, adam())

    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        context, factor = tf.distribute.get_replica_context(), tf.constant(0.01)
        for _ in tf.range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((net.forward(rows) - wanted) ** 2)
            for weight, own in zip(net.weights, tape.gradient(loss, net.weights), strict=True):
                weight.assign_sub(context.all_reduce("SUM", own) * factor)
            factor += tf.reduce_mean(rows) * 0.01
        return factor

    return Left(net.weights, net.run(replica, 1))


def on_the_host(strategy: tf.distribute.Strategy) -> Left:
    """A loop around the program, which also reads a weight between its turns."""
    net = Net(strategy, scaled(gradient_accumulation_steps=2))

    @tf.function
    def epoch(rows: Any, wanted: Any) -> tf.Tensor:
        found = tf.constant(0.0)
        for _ in tf.range(3):
            found = strategy.reduce("SUM", strategy.run(net.train, (rows, wanted)), axis=None)
            found += tf.reduce_sum(net.weights[0])
        return found

    return Left(net.state, [epoch(net.spread(INPUTS), net.spread(TARGETS)) for _ in range(2)])


def before_a_loop(strategy: tf.distribute.Strategy) -> Left:
    """A step and then a loop of steps in one function: the loop is traced and sharded first."""
    net = Net(strategy, adam())

    @tf.function
    def epoch(rows: Any, wanted: Any) -> tf.Tensor:
        found = strategy.reduce("SUM", strategy.run(net.train, (rows, wanted)), axis=None)
        for _ in tf.range(2):
            found += strategy.reduce("SUM", strategy.run(net.train, (rows, wanted)), axis=None)
        return found

    return Left(net.state, [epoch(net.spread(INPUTS), net.spread(TARGETS)) for _ in range(2)])


def over_a_dataset(strategy: tf.distribute.Strategy) -> Left:
    net = Net(strategy, adam())
    data = tf.data.Dataset.from_tensors((INPUTS, TARGETS)).unbatch().batch(8, drop_remainder=True)
    distributed = strategy.experimental_distribute_dataset(data)

    @tf.function
    def epoch(batches: Any) -> tf.Tensor:
        total = tf.constant(0.0)
        for batch in batches:
            total += strategy.reduce("SUM", strategy.run(net.train, batch), axis=None)
        return total

    return Left(net.state, [epoch(distributed) for _ in range(2)])


def restored(strategy: tf.distribute.Strategy) -> Left:
    net = Net(strategy, adam(gradient_accumulation_steps=2))
    checkpoint = tf.train.Checkpoint(model=net.model, optimizer=net.optimizer)
    seen = net.run(net.train, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = checkpoint.save(str(pathlib.Path(folder, "checkpoint")))
        seen += net.run(repeated(net.train, 3), 1)
        checkpoint.restore(path)
    return Left(net.state, seen + net.run(net.train, 2))


def fitted(strategy: tf.distribute.Strategy) -> Left:
    """Keras runs several steps at once, then accumulates, with its weights in shards already."""
    net = Net(strategy, adam())
    seen: list[Any] = []
    for optimizer in (adam(), adam(gradient_accumulation_steps=2)):
        with strategy.scope():
            net.model.compile(optimizer(), loss="mse", steps_per_execution=2)
        history = net.model.fit(INPUTS, TARGETS, batch_size=8, epochs=2, shuffle=False, verbose=0)
        seen += history.history["loss"]
    used = net.model.optimizer
    return Left([v.value for v in (*net.model.weights, *used.variables)], seen)


def looked_up(strategy: tf.distribute.Strategy) -> Left:
    """Keras evaluates and predicts with a table that its training put into shards."""
    with strategy.scope():
        layers = [keras.layers.Embedding(64, 24), keras.layers.Flatten(), keras.layers.Dense(40)]
        model = keras.Sequential([keras.layers.Input((6,), dtype="int32"), *layers])
        model.compile(adam()(), loss="mse")
    tokens = np.arange(96, dtype=np.int32).reshape(16, 6) % 50
    model.fit(tokens, TARGETS, batch_size=8, shuffle=False, verbose=0)
    seen = [model.evaluate(tokens, TARGETS, batch_size=8, verbose=0)]
    seen.append(model.predict(tokens, batch_size=8, verbose=0))
    return Left([v.value for v in (*model.weights, *model.optimizer.variables)], seen)


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        *(
            accumulated,
            averaged,
            overflowing,
            overflowing_on_one,
            looped,
            branched,
            adversarial,
            called,
            handed_a_slot,
            own_factor,
        ),
        *(on_the_host, before_a_loop, over_a_dataset, restored, fitted, looked_up),
    )
}
