"""Ways in which people train: what changes between steps, and what a step holds besides layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence import loop_scenarios, tf_keras_scenarios
from tests.equivalence.in_process import turn_off, turn_on
from tests.equivalence.nested_scenarios import Left, Optimizer, Scenario, adam
from tests.equivalence.net import INPUTS, OUTPUTS, TARGETS, WIDTH, Net
from tf_wu_shard.config import current_options

k = keras.optimizers


def generating(strategy: tf.distribute.Strategy) -> Left:
    """A generator learns from a discriminator; each has an optimizer, one step trains both."""
    dense, sequential = keras.layers.Dense, keras.Sequential
    entering = keras.layers.Input((WIDTH,))
    generator = Net(
        strategy,
        adam(beta_1=0.5),
        lambda: sequential([entering, dense(64, "tanh"), dense(OUTPUTS)]),
    )
    judge = Net(
        strategy,
        lambda: k.RMSprop(0.01),
        lambda: sequential([keras.layers.Input((OUTPUTS,)), dense(128, "tanh"), dense(64)]),
    )

    def train(rows: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(persistent=True) as tape:
            made = generator.model(rows)
            true, false = judge.model(real), judge.model(made)
            judged = tf.reduce_mean(tf.nn.softplus(-true)) + tf.reduce_mean(tf.nn.softplus(false))
            fooled = tf.reduce_mean(tf.nn.softplus(-false))
        judge.apply(tape.gradient(judged, judge.weights))
        generator.apply(tape.gradient(fooled, generator.weights))
        return judged + fooled

    return Left([*generator.state, *judge.state], generator.run(train, 4))


def rated(strategy: tf.distribute.Strategy) -> Left:
    """The learning rate is set between steps that were traced once."""
    net = Net(strategy, adam())

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        return strategy.run(net.train, (rows, wanted))

    given, seen = (net.spread(INPUTS), net.spread(TARGETS)), []
    for rate in (0.01, 0.1, 0.001):
        net.optimizer.learning_rate = rate
        seen.append(strategy.experimental_local_results(step(*given))[0])
    return Left(net.state, seen)


def built_before(strategy: tf.distribute.Strategy) -> Left:
    """The optimizer makes its slots before the flag is on."""
    flag = current_options()
    turn_off()
    net = Net(strategy, adam())
    if flag is not None:
        turn_on()
    return Left(net.state, net.run(net.train, 3))


def layers_with_rates_of_their_own(strategy: tf.distribute.Strategy) -> Left:
    """One optimizer for each layer's variables."""
    net = Net(strategy, adam())
    with strategy.scope():
        slower = k.SGD(0.001, momentum=0.9)
        slower.build(net.model.trainable_variables[2:])
        faster = k.Adam(0.01)
        faster.build(net.model.trainable_variables[:2])

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = net.loss(rows, wanted)
        gradients = tape.gradient(loss, net.weights)
        variables = net.model.trainable_variables
        faster.apply_gradients(zip(gradients[:2], variables[:2], strict=True))
        slower.apply_gradients(zip(gradients[2:], variables[2:], strict=True))
        return loss

    seen = net.run(train, 3)
    slots = [v.value for v in (*faster.variables, *slower.variables)]
    return Left([*(v.value for v in net.model.weights), *slots], seen)


def _fitted(model: Any) -> list[Any]:
    history = model.fit(INPUTS, TARGETS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    losses: list[Any] = history.history["loss"]
    return losses


def swapped(strategy: tf.distribute.Strategy) -> Left:
    """Keras fits with one optimizer after another."""
    net, seen, slots = Net(strategy, adam()), [], []
    made: tuple[Optimizer, ...] = (adam(), lambda: k.SGD(0.05, momentum=0.9), lambda: k.Lion(0.002))
    for optimizer in made:
        with strategy.scope():
            net.model.compile(optimizer(), loss="mse")
        seen += _fitted(net.model)
        slots += net.model.optimizer.variables
    return Left([v.value for v in (*net.model.weights, *slots)], seen)


def thawed(strategy: tf.distribute.Strategy) -> Left:
    """Keras fits with the first layer frozen, with none, and with the last."""
    net, seen, slots = Net(strategy, adam()), [], []
    for frozen in ({0}, set(), {1}):
        for number, layer in enumerate(net.model.layers):
            layer.trainable = number not in frozen
        with strategy.scope():
            net.model.compile(adam()(), loss="mse")
        seen += _fitted(net.model)
        slots += net.model.optimizer.variables
    return Left([v.value for v in (*net.model.weights, *slots)], seen)


def _in_a_step(output: Callable[[Net, tf.Tensor], tf.Tensor]) -> Scenario:
    """Steps of a net whose output is computed in a way of its own."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = Net(strategy, adam())

        def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((output(net, rows) - wanted) ** 2)
            net.apply(tape.gradient(loss, net.weights))
            return loss

        return Left(net.state, net.run(train, 3))

    return scenario


def _recomputed(net: Net, rows: tf.Tensor) -> tf.Tensor:
    first, last = net.model.layers
    return last(tf.recompute_grad(lambda x: first(x))(rows))


@tf.custom_gradient
def _clipped_backward(x: tf.Tensor) -> Any:
    return tf.identity(x), lambda upstream: tf.clip_by_value(upstream, -0.01, 0.01)


def _of_a_gradient_of_its_own(net: Net, rows: tf.Tensor) -> tf.Tensor:
    first, last = net.model.layers
    return last(_clipped_backward(first(rows)))


def _autographed(net: Net, rows: tf.Tensor) -> tf.Tensor:
    first, last = net.model.layers
    hidden = first(rows)
    for _ in tf.range(3):
        if tf.reduce_mean(hidden) > 0.0:
            hidden = tf.tanh(hidden * 1.5)
        else:
            hidden += 0.1
    output: tf.Tensor = last(hidden)
    return output


def retraced(strategy: tf.distribute.Strategy) -> Left:
    """Batches of changing sizes in a function that TensorFlow traces with open dimensions."""
    net = Net(strategy, adam())

    @tf.function(reduce_retracing=True)
    def step(rows: tf.Tensor, wanted: tf.Tensor) -> Any:
        return strategy.run(net.train, (rows, wanted))

    seen = []
    for size in (8, 4, 12, 8):
        loss = step(tf.constant(INPUTS[:size]), tf.constant(TARGETS[:size]))
        seen.append(np.array(strategy.experimental_local_results(loss)[0]))
    return Left(net.state, seen)


SCENARIOS: dict[str, Scenario] = {
    "generating": generating,
    "rated": rated,
    "built_before": built_before,
    "layers_with_rates_of_their_own": layers_with_rates_of_their_own,
    "swapped": swapped,
    "thawed": thawed,
    "recomputed": _in_a_step(_recomputed),
    "of_a_gradient_of_its_own": _in_a_step(_of_a_gradient_of_its_own),
    "autographed": _in_a_step(_autographed),
    "retraced": retraced,
    "overwritten_by_tf_keras": tf_keras_scenarios.overwritten,
    **loop_scenarios.SAMPLE,
}
