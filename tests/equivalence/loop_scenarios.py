"""Loops of steps in one traced function, over data that ends, and slots made in the first step."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from tests.equivalence.nested_scenarios import Left, Optimizer, Scenario, adam
from tests.equivalence.net import INPUTS, OUTPUTS, TARGETS, WIDTH, Net

# Makes what trains on batches of a data set, of the function that trains on one on each replica.
Loop = Callable[[tf.distribute.Strategy, Callable[..., Any]], Callable[[Any], None]]


class Lazy(Net):
    """A net whose optimizer makes its slots in the first step, as tensorflow.org's guides have it.

    Under a `MirroredStrategy` that reduces by collectives TensorFlow fails at that.
    """

    def build_optimizer(self) -> None:
        """Leaves that to the first step."""


class Legacy(Net):
    """A net of the Keras before 3."""

    def __init__(self, strategy: tf.distribute.Strategy, optimizer: Callable[[], Any]) -> None:
        layers = tf_keras.layers
        super().__init__(
            strategy,
            optimizer,
            lambda: tf_keras.Sequential(
                [layers.Input((WIDTH,)), layers.Dense(64, "tanh"), layers.Dense(OUTPUTS)]
            ),
        )

    def trainable(self) -> list[Any]:
        return list(self.model.trainable_variables)

    def build_optimizer(self) -> None:
        """Leaves that to the first step."""

    @property
    def state(self) -> list[Any]:
        optimizer = self.optimizer.variables
        return [*self.model.weights, *(optimizer() if callable(optimizer) else optimizer)]


def batches(strategy: tf.distribute.Strategy, drop_remainder: bool = False) -> Any:
    """Fifteen examples in batches of four, the last of which is smaller unless it is dropped."""
    data = tf.data.Dataset.from_tensor_slices((INPUTS[:15], TARGETS[:15]))
    return strategy.experimental_distribute_dataset(data.batch(4, drop_remainder))


def of_a_range(
    strategy: tf.distribute.Strategy, train: Callable[..., Any]
) -> Callable[[Any], None]:
    @tf.function
    def steps(iterator: Iterator[Any], count: tf.Tensor) -> None:
        for _ in tf.range(count):
            strategy.run(train, args=next(iterator))

    def run(data: Any) -> None:
        iterator = iter(data)
        for count in (2, 1):
            steps(iterator, tf.constant(count))

    return run


def of_a_while_loop(
    strategy: tf.distribute.Strategy, train: Callable[..., Any]
) -> Callable[[Any], None]:
    @tf.function
    def steps(iterator: Iterator[Any], count: tf.Tensor) -> None:
        def body(turn: tf.Tensor) -> tuple[tf.Tensor]:
            strategy.run(train, args=next(iterator))
            return (turn + 1,)

        tf.while_loop(lambda turn: turn < count, body, (tf.constant(0),))

    return lambda data: steps(iter(data), tf.constant(3))


def of_the_data(
    strategy: tf.distribute.Strategy, train: Callable[..., Any]
) -> Callable[[Any], None]:
    @tf.function
    def epoch(data: Any) -> tf.Tensor:
        total = tf.constant(0.0)
        for batch in data:
            total += strategy.reduce("SUM", strategy.run(train, args=batch), axis=None)
        return total

    return epoch


def of_optionals(
    strategy: tf.distribute.Strategy, train: Callable[..., Any]
) -> Callable[[Any], None]:
    @tf.function
    def steps(iterator: Any, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            batch = iterator.get_next_as_optional()
            if batch.has_value():
                strategy.run(train, args=batch.get_value())

    # More steps than there are batches.
    return lambda data: steps(iter(data), tf.constant(6))


def of_orbit(strategy: tf.distribute.Strategy, train: Callable[..., Any]) -> Callable[[Any], None]:
    """As the official models' trainers: a step that is a function, in a loop that is one."""

    @tf.function
    def train_step(iterator: Iterator[Any]) -> None:
        def step_fn(inputs: Any) -> None:
            train(*inputs)

        strategy.run(step_fn, args=(next(iterator),))

    @tf.function
    def train_loop_fn(iterator: Iterator[Any], num_steps: tf.Tensor) -> None:
        for _ in tf.range(num_steps):
            # Names would else grow by the loop's.
            with tf.name_scope(""):
                train_step(iterator)

    def run(data: Any) -> None:
        iterator = iter(data)
        for count in (2, 1):
            train_loop_fn(iterator, tf.constant(count))

    return run


def by_the_guide(
    strategy: tf.distribute.Strategy, train: Callable[..., Any]
) -> Callable[[Any], None]:
    """As tensorflow.org's guide to TPUs: single steps first, several in a function after."""

    @tf.function
    def train_step(iterator: Iterator[Any]) -> None:
        strategy.run(train, args=next(iterator))

    steps = of_a_range(strategy, train)

    def run(data: Any) -> None:
        iterator = iter(data)
        for _ in range(2):
            train_step(iterator)
        steps(data)

    return run


def looped(
    loop: Loop,
    net: Callable[[tf.distribute.Strategy, Callable[[], Any]], Net] = Net,
    optimizer: Callable[[], Any] | None = None,
    **data: Any,
) -> Scenario:
    """Two epochs of a loop, with Adam unless given another optimizer."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        trained = net(strategy, optimizer or adam())
        run = loop(strategy, trained.train)
        for _ in range(2):
            run(batches(strategy, **data))
        return Left(trained.state)

    return scenario


def _step(net: Net) -> Callable[..., Any]:
    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        return net.strategy.run(net.train, (rows, wanted))

    return step


def read_between(strategy: tf.distribute.Strategy) -> Left:
    """Slots that the first step made are read between steps, eagerly and in another function."""
    net, seen = Lazy(strategy, adam()), []
    step, given = _step(net), (net.spread(INPUTS), net.spread(TARGETS))

    @tf.function
    def sums() -> list[tf.Tensor]:
        return [tf.reduce_sum(tf.cast(v.value, tf.float32)) for v in net.optimizer.variables]

    for _ in range(3):
        step(*given)
        seen += [np.array(v) for v in net.optimizer.variables] + [np.array(s) for s in sums()]
    return Left(net.state, seen)


def traced_again(strategy: tf.distribute.Strategy) -> Left:
    """After the steps that made the slots come batches of another size, and then of the first."""
    net = Lazy(strategy, adam())
    step = _step(net)
    whole = net.spread(INPUTS), net.spread(TARGETS)
    half = net.spread(INPUTS[:8]), net.spread(TARGETS[:8])
    for given in (whole, whole, half, half, whole):
        step(*given)
    return Left(net.state)


def restored(strategy: tf.distribute.Strategy) -> Left:
    """A checkpoint is written after slots were made, and read two steps later and in a new net."""
    net = Lazy(strategy, adam())
    step, given = _step(net), (net.spread(INPUTS), net.spread(TARGETS))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            step(*given)
        kept = tf.train.Checkpoint(model=net.model, optimizer=net.optimizer)
        path = kept.save(str(pathlib.Path(folder) / "kept"))
        for _ in range(2):
            step(*given)
        seen = [np.array(v) for v in net.state]
        kept.restore(path)
        step(*given)
        other = Lazy(strategy, adam())
        _step(other)(*given)
        tf.train.Checkpoint(model=other.model, optimizer=other.optimizer).restore(path)
        _step(other)(*given)
    return Left([*net.state, *other.state], seen)


def two_nets(strategy: tf.distribute.Strategy) -> Left:
    """The first step of a net is also the second net's, which has its slots in shards already."""
    first = Lazy(strategy, adam())
    given = first.spread(INPUTS), first.spread(TARGETS)
    _step(first)(*given)
    second = Lazy(strategy, adam(beta_1=0.5))

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
            return first.train(rows, wanted) + second.train(rows, wanted)

        return strategy.run(replica, (rows, wanted))

    for _ in range(3):
        step(*given)
    return Left([*first.state, *second.state])


def _legacy(name: str, **keywords: Any) -> Callable[[], Any]:
    return lambda: getattr(tf_keras.optimizers, name)(0.01, **keywords)


_momentum: Optimizer = functools.partial(keras.optimizers.SGD, 0.05, momentum=0.9)
_old = tf_keras.optimizers.legacy

# A few that stand for the others where time is short.
SAMPLE: dict[str, Scenario] = {
    "range_of_steps": looped(of_a_range),
    "orbit_fused": looped(of_orbit, Legacy, lambda: _old.Adam(0.01)),
}

BUILT: dict[str, Scenario] = {
    "range_whole_batches": looped(of_a_range, drop_remainder=True),
    "range_plain": looped(of_a_range, optimizer=lambda: keras.optimizers.SGD(0.05)),
    "while_loop": looped(of_a_while_loop),
    "while_loop_tf_keras": looped(of_a_while_loop, Legacy, _legacy("SGD", momentum=0.9)),
    "data": looped(of_the_data),
    "data_tf_keras": looped(of_the_data, Legacy, _legacy("Adam")),
    "optionals": looped(of_optionals),
    "optionals_tf_keras": looped(of_optionals, Legacy, _legacy("Adam")),
    "orbit": looped(of_orbit),
    "orbit_tf_keras": looped(of_orbit, Legacy, _legacy("Adam")),
    "guide_built": looped(by_the_guide, drop_remainder=True),
}

# The first step makes the slots.
LAZY: dict[str, Scenario] = {
    "guide": looped(by_the_guide, Lazy),
    "range_lazy": looped(of_a_range, Lazy),
    "while_loop_lazy": looped(of_a_while_loop, Lazy),
    "data_lazy": looped(of_the_data, Lazy, _momentum),
    "orbit_lazy": looped(of_orbit, Lazy),
    "read_between": read_between,
    "traced_again": traced_again,
    "restored": restored,
    "two_nets": two_nets,
}

SCENARIOS: dict[str, Scenario] = SAMPLE | BUILT | LAZY
