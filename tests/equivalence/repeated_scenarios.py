"""Steps that update a variable more than once, and read it between its updates.

Each scenario trains a small net and returns the variables to compare and other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tests.equivalence.in_process import dense_model
from tests.equivalence.nested_scenarios import Left, Optimizer, Scenario, adam
from tests.equivalence.net import OUTPUTS, WIDTH, Net

k = keras.optimizers
dense = keras.layers.Dense


def _critic_and_generator(
    strategy: tf.distribute.Strategy, judging: Optimizer, making: Optimizer
) -> tuple[Net, Net]:
    critic = Net(
        strategy,
        judging,
        lambda: keras.Sequential([keras.Input((OUTPUTS,)), dense(64, "tanh"), dense(32)]),
    )
    generator = Net(
        strategy,
        making,
        lambda: keras.Sequential([keras.Input((WIDTH,)), dense(48, "tanh"), dense(OUTPUTS)]),
    )
    return critic, generator


def _criticised(
    judging: Optimizer, making: Optimizer, turns: int = 3, penalty: float = 10.0
) -> Scenario:
    """WGAN-GP: a critic learns some times, its gradient held to one, then a generator learns."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        critic, generator = _critic_and_generator(strategy, judging, making)

        def train(rows: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
            judged = tf.constant(0.0)
            for turn in range(turns):
                made = generator.forward(rows + 0.1 * turn)
                between = real + 0.3 * (made - real)
                with tf.GradientTape() as tape:
                    with tf.GradientTape() as inner:
                        inner.watch(between)
                        value = tf.reduce_mean(critic.forward(between))
                    slope = inner.gradient(value, between)
                    length = tf.sqrt(tf.reduce_sum(slope**2, axis=1) + 1e-6)
                    judged = tf.reduce_mean(critic.forward(made) - critic.forward(real))
                    judged += penalty * tf.reduce_mean((length - 1.0) ** 2)
                critic.apply(tape.gradient(judged, critic.weights))
            with tf.GradientTape() as tape:
                fooled = -tf.reduce_mean(critic.forward(generator.forward(rows)))
            generator.apply(tape.gradient(fooled, generator.weights))
            return judged + fooled

        return Left([*generator.state, *critic.state], generator.run(train, 2))

    return scenario


def _repeated(optimizer: Optimizer, turns: int = 2) -> Scenario:
    """One net that learns several times in a step, with a forward pass before each."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = Net(strategy, optimizer)

        def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
            loss = tf.constant(0.0)
            for turn in range(turns):
                loss += net.train(rows * (1.0 + 0.1 * turn), wanted)
            return loss

        return Left(net.state, net.run(train, 3))

    return scenario


def applied_twice(strategy: tf.distribute.Strategy) -> Left:
    """The same gradients are applied twice, with nothing read in between."""
    net = Net(strategy, adam())

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = net.loss(rows, wanted)
        gradients = tape.gradient(loss, net.weights)
        net.apply(gradients)
        net.apply(gradients)
        return loss

    return Left(net.state, net.run(train, 3))


def _built(strategy: tf.distribute.Strategy, optimizer: Optimizer, variables: Sequence[Any]) -> Any:
    with strategy.scope():
        made = optimizer()
        made.build(variables)
    return made


def two_optimizers(strategy: tf.distribute.Strategy) -> Left:
    """One optimizer after the other updates the same weights, each with slots of its own."""
    net = Net(strategy, adam())
    other = _built(strategy, lambda: k.RMSprop(0.01, momentum=0.9), net.model.trainable_variables)

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        first = net.train(rows, wanted)
        with tf.GradientTape() as tape:
            second = net.loss(rows * 0.5, wanted)
        pairs = zip(tape.gradient(second, net.weights), net.model.trainable_variables, strict=True)
        other.apply_gradients(pairs)
        return first + second

    seen = net.run(train, 3)
    return Left([*net.state, *(v.value for v in other.variables)], seen)


def some_more_often(strategy: tf.distribute.Strategy) -> Left:
    """The last layer learns four times in a step, the first one once, after the second time."""
    net = Net(strategy, adam(weight_decay=0.01))
    variables = net.model.trainable_variables
    slower = _built(strategy, lambda: k.AdamW(0.01), variables[2:])

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for turn in range(4):
            if turn == 2:
                loss += net.train(rows, wanted)
                continue
            with tf.GradientTape() as tape:
                loss += net.loss(rows * (1.0 + turn), wanted)
            gradients = tape.gradient(loss, net.weights[2:])
            slower.apply_gradients(zip(gradients, variables[2:], strict=True))
        return loss

    seen = net.run(train, 3)
    return Left([*net.state, *(v.value for v in slower.variables)], seen)


def _assign(strategy: tf.distribute.Strategy, variables: Sequence[Any], values: Any) -> None:
    """Assigns values that are equal on all replicas."""

    def everywhere(strategy: tf.distribute.Strategy, values: Sequence[tf.Tensor]) -> None:
        for variable, value in zip(variables, values, strict=True):
            strategy.extended.update(variable, lambda v, x: v.assign(x), args=(value,))

    tf.distribute.get_replica_context().merge_call(everywhere, args=(values,))


def reptile(strategy: tf.distribute.Strategy) -> Left:
    """Some steps, then back most of the way to where the weights were."""
    net = Net(strategy, lambda: k.SGD(0.1, momentum=0.9))

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        before = [tf.identity(weight) for weight in net.weights]
        loss = net.train(rows, wanted) + net.train(rows * 0.5, wanted)
        after = [old + 0.3 * (new - old) for old, new in zip(before, net.weights, strict=True)]
        _assign(strategy, net.weights, after)
        return loss

    return Left(net.state, net.run(train, 3))


def learning_to_learn(strategy: tf.distribute.Strategy) -> Left:
    """MAML to first order: inner steps of the weights' own, back again, then the outer step."""
    net = Net(strategy, adam())

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        before = [tf.identity(weight) for weight in net.weights]
        context = tf.distribute.get_replica_context()
        for _ in range(2):
            with tf.GradientTape() as tape:
                inner = net.loss(rows, wanted)
            gradients = context.all_reduce("MEAN", tape.gradient(inner, net.weights))
            moved = [w - 0.1 * g for w, g in zip(net.weights, gradients, strict=True)]
            _assign(strategy, net.weights, moved)
        with tf.GradientTape() as tape:
            outer = net.loss(rows * 0.5, wanted)
        gradients = tape.gradient(outer, net.weights)
        _assign(strategy, net.weights, before)
        net.apply(gradients)
        return outer

    return Left(net.state, net.run(train, 3))


def _looked_up(optimizer: Optimizer, turns: int = 3) -> Scenario:
    """A table that sparse gradients update several times in a step, and the layers behind it."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        def words() -> keras.Model:
            looking = keras.layers.Embedding(60, 16)
            layers = [keras.Input((WIDTH,)), looking, keras.layers.Flatten(), dense(OUTPUTS)]
            return keras.Sequential(layers)

        def ids(rows: tf.Tensor, turn: int) -> tf.Tensor:
            return tf.cast(tf.math.floormod(tf.abs(rows) * (20.0 + turn), 50.0), tf.int32)

        net = Net(strategy, optimizer, words)

        def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
            loss = tf.constant(0.0)
            for turn in range(turns):
                with tf.GradientTape() as tape:
                    own = net.loss(ids(rows, turn), wanted)
                net.apply(tape.gradient(own, net.weights))
                loss += own
            return loss

        return Left(net.state, net.run(train, 3))

    return scenario


def two_heads(strategy: tf.distribute.Strategy) -> Left:
    """A body and one head learn together, then another head from the body as it is now.

    The two heads' norms must not travel together: the second one's is computed with the body, which
    is put together with the first head.
    """
    net = Net(strategy, lambda: k.SGD(0.1, momentum=0.9), lambda: dense_model(WIDTH, 32, 32))
    layers = [dense(OUTPUTS, use_bias=False) for _ in range(2)]
    with strategy.scope():
        for layer in layers:
            layer.build((None, 32))
    heads = [layer.kernel for layer in layers]
    normed = [_built(strategy, lambda: k.Lamb(0.01), [head]) for head in heads]

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            first = tf.reduce_mean((layers[0](net.forward(rows)) - wanted) ** 2)
        *own, last = tape.gradient(first, [*net.weights, heads[0].value])
        normed[0].apply_gradients([(last, heads[0])])
        net.apply(own)
        with tf.GradientTape() as tape:
            second = tf.reduce_mean((layers[1](net.forward(rows)) - wanted) ** 2)
        normed[1].apply_gradients([(tape.gradient(second, heads[1].value), heads[1])])
        return first + second

    seen = net.run(train, 3)
    slots = [v.value for optimizer in normed for v in optimizer.variables]
    return Left([*net.state, *(head.value for head in heads), *slots], seen)


def each_then_both(strategy: tf.distribute.Strategy) -> Left:
    """A critic learns, then a generator by the new critic, then both of them at once.

    The last two updates travel together, behind what the second one waits for.
    """
    critic, generator = _critic_and_generator(strategy, adam(), adam())

    def train(rows: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        lost = tf.constant(0.0)
        for learning in ([critic], [generator], [critic, generator]):
            with tf.GradientTape(persistent=True) as tape:
                judged = tf.reduce_mean(critic.forward(generator.forward(rows)) ** 2)
                judged -= tf.reduce_mean(critic.forward(real))
            for net in learning:
                net.apply(tape.gradient(judged, net.weights))
            lost += judged
        return lost

    return Left([*generator.state, *critic.state], generator.run(train, 3))


def normalized_before_use(strategy: tf.distribute.Strategy) -> Left:
    """Kernels are divided by their largest singular value, in a branch, before layers use them."""
    net = Net(
        strategy,
        adam(),
        lambda: keras.Sequential(
            [
                keras.Input((WIDTH,)),
                keras.layers.SpectralNormalization(dense(64, "tanh")),
                keras.layers.SpectralNormalization(dense(OUTPUTS)),
            ]
        ),
    )

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net.model(rows, training=True) - wanted) ** 2)
        net.apply(tape.gradient(loss, net.weights))
        return loss

    return Left(net.state, net.run(train, 3))


SCENARIOS: dict[str, Scenario] = {
    "wgan_gp": _criticised(adam(beta_1=0.5), lambda: k.RMSprop(0.01)),
    "wgan_clipped": _criticised(adam(global_clipnorm=0.1), adam(clipnorm=0.1), turns=2),
    "twice": _repeated(adam()),
    "twice_by_sgd": _repeated(lambda: k.SGD(0.1)),
    "five_times": _repeated(lambda: k.AdamW(0.01, weight_decay=0.1), 5),
    "normed_three_times": _repeated(lambda: k.Lamb(0.01), 3),
    "muon": _repeated(lambda: k.Muon(0.01), 3),
    "averaged": _repeated(adam(use_ema=True), 2),
    "applied_twice": applied_twice,
    "two_optimizers": two_optimizers,
    "some_more_often": some_more_often,
    "looked_up": _looked_up(adam()),
    "looked_up_by_rmsprop": _looked_up(lambda: k.RMSprop(0.01)),
    "two_heads": two_heads,
    "each_then_both": each_then_both,
    "reptile": reptile,
    "learning_to_learn": learning_to_learn,
    "normalized_before_use": normalized_before_use,
}
