"""What programs and their host may do to weights that an earlier step put into shards.

Each scenario trains a small net one sharded step first. Then comes something that has no form of
its own on shards: the whole weights are gathered for it, and what it writes is cut again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tests.equivalence.nested_scenarios import Left, Optimizer, Scenario, adam
from tests.equivalence.net import INPUTS, TARGETS, Net


def _compiled_again(optimizer: Optimizer) -> Scenario:
    """Keras trains with Adam, with another optimizer, and with Adam once more."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net, seen = Net(strategy, adam()), []
        for made in (adam(), optimizer, adam()):
            with strategy.scope():
                net.model.compile(made(), loss="mse")
            history = net.model.fit(INPUTS, TARGETS, batch_size=8, shuffle=False, verbose=0)
            seen += history.history["loss"]
        used = net.model.optimizer
        return Left([v.value for v in (*net.model.weights, *used.variables)], seen)

    return scenario


def _after_a_step(replica: Callable[[Net, tf.Tensor, tf.Tensor], tf.Tensor]) -> Scenario:
    """A step, twice another function on each replica, and a step."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = Net(strategy, adam())
        seen = net.run(net.train, 1)
        seen += net.run(lambda rows, wanted: replica(net, rows, wanted), 2)
        return Left(net.state, seen + net.run(net.train, 1))

    return scenario


def _beside_a_step(host: Callable[[Net, tf.Tensor], tf.Tensor]) -> Scenario:
    """A step, a function on the host, and both in turn."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = Net(strategy, adam())

        @tf.function
        def function(factor: tf.Tensor) -> tf.Tensor:
            return host(net, factor)

        seen: list[Any] = net.run(net.train, 1)
        for factor in (0.5, 0.05):
            seen.append(function(tf.constant(factor)))
            seen += net.run(net.train, 1)
        return Left(net.state, seen)

    return scenario


def _loss_of_condition(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """A loop whose condition reads what its body trains."""
    loss: tf.Tensor = tf.while_loop(
        lambda turn, _: (turn < 3) & (tf.reduce_sum(net.weights[0] ** 2) < 1e9),
        lambda turn, _: (turn + 1, net.train(rows, wanted)),
        (tf.constant(0), tf.constant(0.0)),
    )[1]
    return loss


def _branch_and_outside(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    net.count.assign_add(1)
    first = tf.cond(
        net.count % 2 == 0, lambda: net.train(rows, wanted), lambda: tf.reduce_sum(net.weights[0])
    )
    return first + net.train(rows, wanted)


def _normed_in_a_branch(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    def normed() -> tf.Tensor:
        for weight in net.weights:
            weight.assign(weight / (1e-3 + tf.norm(weight)))
        return tf.reduce_sum(net.weights[0])

    net.count.assign_add(1)
    loss = net.train(rows, wanted)
    found = tf.cond(net.count % 2 == 0, normed, lambda: tf.constant(0.0))
    return loss + found + tf.reduce_sum(net.weights[2])


def _branches_in_a_loop(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Each turn changes one weight and looks at the other."""
    found = tf.constant(0.0)
    first, second = net.weights[0], net.weights[2]
    for turn in tf.range(3):
        if turn % 2 == 0:
            first.assign_sub(tf.reverse(first, [0]) * 0.01)
        else:
            second.assign_add(second * tf.reduce_mean(first))
        found += tf.reduce_sum(second)
    return found + tf.reduce_sum(first)


def _called(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """A function that a branch calls turns a weight around."""

    @tf.function
    def turned() -> tf.Tensor:
        net.weights[0].assign(tf.reverse(net.weights[0], [1]))
        return tf.nn.embedding_lookup(net.weights[0], [1, 0, 1])

    found = tf.cond(tf.reduce_sum(rows) < 1e9, turned, lambda: tf.zeros((3, 64)))
    return tf.reduce_sum(found[0]) + tf.reduce_sum(net.weights[0][0])


def _looked_up(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    net.weights[0].assign(tf.reverse(net.weights[0], [1]))
    rows_of = tf.raw_ops.ResourceGather(
        resource=net.weights[0].handle, indices=[3, 0], dtype=tf.float32
    )
    return tf.reduce_sum(rows_of[0])


def _refused(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """An update with an op that has no rule."""
    with tf.GradientTape() as tape:
        loss = net.loss(rows, wanted)
    context = tf.distribute.get_replica_context()
    for weight, own in zip(net.weights, tape.gradient(loss, net.weights), strict=True):
        weight.assign_sub(0.01 * tf.cumsum(context.all_reduce("SUM", own), 0))
    return loss


def _twice(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """An unrolled loop of steps."""
    return net.train(rows, wanted) + net.train(rows, wanted)


def _assigned(net: Net, factor: tf.Tensor) -> tf.Tensor:
    before = tf.reduce_sum(net.weights[0])
    net.weights[0].assign(tf.reverse(net.weights[0], [1]) * factor)
    net.weights[2].assign_add(net.weights[2] * factor)
    return before + tf.reduce_sum(net.weights[0][0])


def _assigned_in_branches(net: Net, factor: tf.Tensor) -> tf.Tensor:
    """The host's branches and loops write what it reads before and after them."""
    before = tf.reduce_sum(net.weights[2][0])
    if factor > 0.1:
        net.weights[0].assign(tf.reverse(net.weights[0], [1]) * factor)
    for _ in tf.range(3):
        net.weights[2].assign_add(net.weights[2] * factor)
    return before + tf.reduce_sum(net.weights[0][0]) + tf.reduce_sum(net.weights[2][0])


def _around_a_program(net: Net, factor: tf.Tensor) -> tf.Tensor:
    """The host changes a weight in a branch before a program reads it, and after."""

    def replica() -> tf.Tensor:
        return tf.reduce_sum(net.weights[0][1])

    if factor > 0.1:
        net.weights[0].assign_add(net.weights[0] * factor)
    found = net.strategy.reduce("SUM", net.strategy.run(replica), axis=None)
    for _ in tf.range(2):
        net.weights[0].assign_sub(net.weights[0] * factor)
    return found + tf.reduce_sum(net.weights[0][0])


def _component(net: Net, factor: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(net.weights[0].values[1][0]) * factor


def _scattered(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    row = tf.IndexedSlices(tf.ones((1, 64)), [5])
    net.weights[0].scatter_update(row)
    return tf.reduce_sum(net.weights[0])


def _scattered_on_host(net: Net, factor: tf.Tensor) -> tf.Tensor:
    net.weights[0].scatter_update(tf.IndexedSlices(tf.fill((2, 64), factor), [5, 2]))
    return tf.reduce_sum(net.weights[0])


def _calls_after_the_update(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Functions with calls, branches and loops in them see a weight before and after its update."""
    weight = net.weights[0]

    @tf.function
    def product(left: tf.Tensor) -> tf.Tensor:
        return tf.matmul(left, weight)

    @tf.function
    def called(left: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(product(left * 2.0))

    @tf.function
    def branched(left: tf.Tensor) -> tf.Tensor:
        found: tf.Tensor = tf.cond(
            tf.reduce_sum(left) < 1e9, lambda: tf.reduce_sum(weight), lambda: tf.constant(0.0)
        )
        return found

    @tf.function
    def looped(left: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(
            tf.map_fn(lambda row: tf.reduce_sum(row) * tf.reduce_sum(weight), left)
        )

    def look() -> tf.Tensor:
        return tf.stack([called(rows), branched(rows), looped(rows)])

    before = look()
    net.train(rows, wanted)
    return tf.stack([before, look()])


def _changed_by_calls(net: Net, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """A function that changes one weight by another, called twice by a function, twice."""
    first, second = net.weights[0], net.weights[2]

    @tf.function
    def square() -> tf.Tensor:
        return tf.reduce_sum(first**2)

    @tf.function
    def changed() -> tf.Tensor:
        second.assign_add(second * square() * 1e-4)
        return square() + tf.reduce_sum(second)

    @tf.function
    def both() -> tf.Tensor:
        return changed() + changed()

    before = both()
    return tf.stack([before, net.train(rows, wanted), both()])


def _called_step(strategy: tf.distribute.Strategy) -> Left:
    """A function of the host calls the step and others, which were redirected alone."""
    net = Net(strategy, adam())
    given = net.spread(INPUTS), net.spread(TARGETS)
    weight = net.weights[0]

    @tf.function
    def step(rows: Any, wanted: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(net.train, (rows, wanted)), axis=None)

    @tf.function
    def total() -> tf.Tensor:
        return tf.reduce_sum(weight)

    @tf.function
    def decayed() -> None:
        weight.assign(weight * 0.9)

    @tf.function
    def beside(rows: Any, wanted: Any) -> list[tf.Tensor]:
        """The step and the host's own reads and writes."""
        weight.assign(weight * 2.0)
        seen = [step(rows, wanted), tf.reduce_sum(weight)]
        weight.assign(weight * 0.5)
        for _ in tf.range(2):
            step(rows, wanted)
        return [*seen, tf.reduce_sum(weight)]

    @tf.function
    def among_calls(rows: Any, wanted: Any) -> list[tf.Tensor]:
        """The step among functions that the host calls."""
        seen = [total(), step(rows, wanted), total()]
        decayed()
        seen += [total(), step(rows, wanted)]
        return [*seen, total()]

    seen = [step(*given)]
    for _ in range(2):
        seen += [*beside(*given), *among_calls(*given)]
    return Left(net.state, seen)


_AVERAGE: dict[str, Any] = {"use_ema": True, "ema_overwrite_frequency": 2}

SCENARIOS: dict[str, Scenario] = {
    "averaged": _compiled_again(adam(gradient_accumulation_steps=2, **_AVERAGE)),
    "decayed": _compiled_again(
        lambda: keras.optimizers.AdamW(0.01, gradient_accumulation_steps=2, **_AVERAGE)
    ),
    "muon": _compiled_again(lambda: keras.optimizers.Muon(0.01)),
    "condition": _after_a_step(_loss_of_condition),
    "branch_and_outside": _after_a_step(_branch_and_outside),
    "normed_in_a_branch": _after_a_step(_normed_in_a_branch),
    "branches_in_a_loop": _after_a_step(_branches_in_a_loop),
    "called": _after_a_step(_called),
    "looked_up": _after_a_step(_looked_up),
    "scattered": _after_a_step(_scattered),
    "calls_after_the_update": _after_a_step(_calls_after_the_update),
    "changed_by_calls": _after_a_step(_changed_by_calls),
    "refused": _after_a_step(_refused),
    "twice": _after_a_step(_twice),
    "assigned": _beside_a_step(_assigned),
    "assigned_in_branches": _beside_a_step(_assigned_in_branches),
    "scattered_on_host": _beside_a_step(_scattered_on_host),
    "called_step": _called_step,
    "around_a_program": _beside_a_step(_around_a_program),
    "component": _beside_a_step(_component),
}
