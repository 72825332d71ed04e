"""Steps traced when a slot lives in shards that update it and look at it, at various moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.equivalence.nested_scenarios import Left, Scenario


class _Trained:
    """A weight with its momentum, and what may be done to them on a replica or on the host."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        shape = (48, 40)
        with strategy.scope():
            self.weight = tf.Variable(tf.reshape(tf.range(1920.0), shape) / 900)
            self.momentum = tf.Variable(tf.zeros(shape), trainable=False)
        self.total = tf.function(lambda: tf.reduce_sum(self.momentum))
        self.halved = tf.function(lambda: self.momentum.assign(self.momentum * 0.5))

    def gradient(self) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        own = 1.0 + tf.cast(context.replica_id_in_sync_group, tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(self.weight)) * own
        return context.all_reduce("SUM", tape.gradient(loss, self.weight))

    def write(self, gradient: tf.Tensor) -> None:
        self.momentum.assign(0.9 * self.momentum + gradient)
        self.weight.assign_sub(0.01 * self.momentum)

    def update(self) -> tf.Tensor:
        self.write(self.gradient())
        return tf.constant(0.0)

    def everywhere(self, replica: Callable[[], tf.Tensor] | None = None) -> tf.Tensor:
        """What the replicas return, added up; they update where nothing else is said."""
        returned = self.strategy.run(replica or self.update)
        return self.strategy.reduce("SUM", returned, axis=None)


def _on_replicas(replica: Callable[[_Trained], tf.Tensor]) -> Scenario:
    """A plain step, and some in which each replica does something else."""
    return _on_host(lambda trained: trained.everywhere(lambda: replica(trained)))


def _on_host(host: Callable[[_Trained], Any]) -> Scenario:
    """A plain step, and some functions of the host."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        trained = _Trained(strategy)

        @tf.function
        def other() -> tf.Tensor:
            return host(trained)

        tf.function(trained.everywhere)()
        return Left([trained.weight, trained.momentum], [other().numpy() for _ in range(3)])

    return scenario


def _read_twice(trained: _Trained) -> tf.Tensor:
    before = tf.reduce_sum(trained.momentum)
    trained.update()
    return before + 2 * tf.reduce_sum(trained.momentum)


def _called_twice(trained: _Trained) -> tf.Tensor:
    before = trained.total()
    trained.update()
    return before + 2 * trained.total()


def _by_a_call(trained: _Trained) -> tf.Tensor:
    """The update is a call, too."""
    tf.function(trained.write)(trained.gradient())
    return trained.total()


def _in_a_gradient(trained: _Trained) -> tf.Tensor:
    gradient = trained.gradient() + 0.01 * trained.momentum
    trained.write(gradient)
    return tf.reduce_sum(trained.momentum)


def _in_a_branch(trained: _Trained) -> tf.Tensor:
    trained.update()
    shown = tf.reduce_sum(trained.weight) > -1e9
    found: tf.Tensor = tf.cond(
        shown, lambda: tf.reduce_sum(trained.momentum), lambda: tf.constant(0.0)
    )
    return found + tf.cond(shown, trained.total, lambda: tf.constant(0.0))


def _in_a_loop(trained: _Trained) -> tf.Tensor:
    trained.update()
    found: tf.Tensor = tf.while_loop(
        lambda turn, _: turn < 3,
        lambda turn, total: (turn + 1, total + tf.reduce_sum(trained.momentum)),
        (0, 0.0),
    )[1]
    return found


def _updated_in_a_loop(trained: _Trained) -> tf.Tensor:
    """Each turn calls the update and looks at what it left."""
    gradient = trained.gradient()
    write = tf.function(trained.write)

    def turn(number: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        write(gradient)
        return number + 1, total + tf.reduce_sum(trained.momentum)

    found: tf.Tensor = tf.while_loop(lambda number, _: number < 3, turn, (0, 0.0))[1]
    return found


def _written_in_a_loop(trained: _Trained) -> tf.Tensor:
    """After the update, odd turns write the slot and even ones the weight."""
    trained.update()
    found = tf.constant(0.0)
    for number in tf.range(3):
        if number % 2 == 1:
            trained.momentum.assign(trained.momentum * 0.9)
        else:
            trained.weight.assign_add(trained.momentum * 0.01)
        found += tf.reduce_sum(trained.momentum)
    return found


def _updated_in_a_branch(trained: _Trained) -> tf.Tensor:
    gradient = trained.gradient()
    finite = tf.reduce_sum(gradient) > -1e9
    tf.cond(finite, lambda: trained.write(gradient), lambda: None)
    return tf.reduce_sum(trained.momentum)


def _between_updates(trained: _Trained) -> tf.Tensor:
    trained.update()
    between = tf.reduce_sum(trained.momentum)
    trained.update()
    return between + trained.total()


def _around_on_host(trained: _Trained) -> tf.Tensor:
    seen = [trained.total(), tf.reduce_sum(trained.momentum)]
    trained.everywhere()
    return tf.stack([*seen, trained.total(), tf.reduce_sum(trained.momentum)])


def _written_on_host(trained: _Trained) -> tf.Tensor:
    """The replicas look before and after, the host halves it in between."""
    seen = [trained.everywhere(lambda: _called_twice(trained)), trained.total()]
    trained.momentum.assign(trained.momentum * 0.5)
    return tf.stack([*seen, trained.everywhere(lambda: _read_twice(trained)), trained.total()])


def _written_by_a_call(trained: _Trained) -> tf.Tensor:
    seen = [trained.everywhere(lambda: _called_twice(trained))]
    trained.halved()
    return tf.stack([*seen, trained.total(), trained.everywhere(lambda: _read_twice(trained))])


def _in_a_loop_of_steps(trained: _Trained) -> tf.Tensor:
    found = tf.constant(0.0)
    for _ in tf.range(2):
        found += trained.everywhere(lambda: _called_twice(trained)) + trained.total()
    return found


def _called_around_a_call(trained: _Trained) -> tf.Tensor:
    """Functions within a function look before and after another one in it updates."""
    write = tf.function(trained.write)

    @tf.function
    def around(gradient: tf.Tensor) -> tf.Tensor:
        before = trained.total()
        write(gradient)
        return before + 2 * trained.total()

    return around(trained.gradient())


def _in_the_condition_of_a_loop(trained: _Trained) -> tf.Tensor:
    trained.update()

    def turn(number: tf.Tensor) -> tuple[tf.Tensor]:
        trained.momentum.assign(trained.momentum * 0.5)
        return (number + 1,)

    def goes_on(number: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.abs(trained.momentum)) > 500.0

    return tf.cast(tf.while_loop(goes_on, turn, (0,))[0], tf.float32)


def _updated_or_reset(trained: _Trained) -> tf.Tensor:
    """The host either runs the replicas or changes the slot itself, then changes it anyway."""
    found = tf.constant(0.0)
    for number in tf.range(3):
        if number % 2 == 0:
            found += trained.everywhere(lambda: _read_twice(trained))
        else:
            trained.momentum.assign(trained.momentum * 0.25)
    trained.momentum.assign(trained.momentum * 0.5)
    return found + trained.total()


def _while_it_is_small(trained: _Trained) -> tf.Tensor:
    """The host looks at the slot to decide whether the replicas run once more."""
    number = 0
    while tf.reduce_sum(trained.momentum) < 1e5 and number < 2:
        trained.everywhere()
        number += 1
    return tf.cast(number, tf.float32) + trained.total()


def _over_a_dataset(trained: _Trained) -> tf.Tensor:
    """The host looks, and runs the replicas, when a loop over data has run them."""
    for _ in tf.data.Dataset.range(2):
        trained.everywhere()
    found = tf.reduce_sum(trained.momentum)
    trained.momentum.assign(trained.momentum * 0.5)
    return tf.stack([found, trained.everywhere(lambda: _read_twice(trained))])


def _function_of_host_twice(trained: _Trained) -> tf.Tensor:
    """A function that writes the slot and runs the replicas, before and after a step."""

    @tf.function
    def both() -> tf.Tensor:
        trained.momentum.assign(trained.momentum * 0.5)
        return trained.everywhere(lambda: _read_twice(trained))

    seen = [both()]
    trained.everywhere()
    return tf.stack([*seen, both()])


SCENARIOS: dict[str, Scenario] = {
    "read_twice": _on_replicas(_read_twice),
    "called_twice": _on_replicas(_called_twice),
    "by_a_call": _on_replicas(_by_a_call),
    "in_a_gradient": _on_replicas(_in_a_gradient),
    "in_a_branch": _on_replicas(_in_a_branch),
    "in_a_loop": _on_replicas(_in_a_loop),
    "updated_in_a_loop": _on_replicas(_updated_in_a_loop),
    "written_in_a_loop": _on_replicas(_written_in_a_loop),
    "updated_in_a_branch": _on_replicas(_updated_in_a_branch),
    "between_updates": _on_replicas(_between_updates),
    "called_around_a_call": _on_replicas(_called_around_a_call),
    "in_the_condition_of_a_loop": _on_replicas(_in_the_condition_of_a_loop),
    "updated_or_reset": _on_host(_updated_or_reset),
    "while_it_is_small": _on_host(_while_it_is_small),
    "over_a_dataset": _on_host(_over_a_dataset),
    "function_of_host_twice": _on_host(_function_of_host_twice),
    "around_on_host": _on_host(_around_on_host),
    "written_on_host": _on_host(_written_on_host),
    "written_by_a_call": _on_host(_written_by_a_call),
    "in_a_loop_of_steps": _on_host(_in_a_loop_of_steps),
}
