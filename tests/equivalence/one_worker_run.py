"""Functions that one worker traces alone, or otherwise than the others, with the flag and without.

    TF_CONFIG=... python -m tests.equivalence.one_worker_run compare [NAME...]
    TF_CONFIG=... python -m tests.equivalence.one_worker_run refused NAME

Each case is run twice, and what it leaves is compared bit for bit. With `refused` the slots live in
shards already when there comes what no worker can go on from.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import in_shards, turn_off, turn_on
from tests.equivalence.nested_scenarios import Left, adam
from tests.equivalence.net import INPUTS, TARGETS, Net
from tf_wu_shard.errors import StorageError

AGREEMENT_SECONDS = 3.0


class Run:
    """What every case starts from: a net, its step, and who this worker is."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        self.is_chief = strategy.cluster_resolver.task_id == 0
        self.net = Net(strategy, adam())
        self.given = self.net.spread(INPUTS), self.net.spread(TARGETS)
        self.step = self.step_of()

    def step_of(self) -> Any:
        """A train step that was not traced yet."""

        @tf.function
        def step(rows: Any, wanted: Any) -> Any:
            return self.strategy.run(self.net.train, (rows, wanted))

        return step

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step(*self.given)

    def length(self) -> tf.Tensor:
        """The norm of the momentum of the first layer's kernel."""
        slots = self.net.optimizer.variables
        slot = next(v for v in slots if v.path.endswith("kernel_momentum"))
        return tf.norm(slot.value)

    def left(self, *seen: Any) -> Left:
        return Left(self.net.state, seen)


def traced_early(strategy: tf.distribute.Strategy) -> Left:
    """The chief traces the step and begins it, long before the other worker comes."""
    run = Run(strategy)
    if not run.is_chief:
        time.sleep(3 * AGREEMENT_SECONDS)
    started = time.monotonic()
    run.step.get_concrete_function(*run.given)
    print("traced in", time.monotonic() - started, flush=True)
    run.train(3)
    return run.left()


def looked_at_early(strategy: tf.distribute.Strategy) -> Left:
    """The chief traces another function of the same weights, which the other never traces."""
    run = Run(strategy)
    if run.is_chief:
        run.step_of().get_concrete_function(*run.given)
    run.train(3)
    return run.left()


def read_in_step(strategy: tf.distribute.Strategy) -> Left:
    """The step itself reads a slot, on the chief alone."""
    run = Run(strategy)

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        length = run.length() if run.is_chief else tf.constant(0.0)
        strategy.run(run.net.train, (rows, wanted))
        return length

    return run.left(*(step(*run.given) for _ in range(3)))


def evaluated_alone(strategy: tf.distribute.Strategy) -> Left:
    """The chief alone evaluates; the other goes on to the next step."""
    run = Run(strategy)
    run.train(2)

    @tf.function
    def evaluation() -> Any:
        return run.length()

    seen = [evaluation()] if run.is_chief else []
    run.train(2)
    return run.left(*seen, evaluation())


def evaluated_by_all(strategy: tf.distribute.Strategy) -> Left:
    """All evaluate and sum a loss; the chief's evaluation reads a slot, too."""
    run = Run(strategy)
    run.train(2)

    @tf.function
    def evaluation(rows: Any, wanted: Any) -> Any:
        losses = strategy.run(run.net.loss, (rows, wanted))
        length = run.length() if run.is_chief else tf.constant(0.0)
        return strategy.reduce("SUM", losses, axis=None), length

    seen = [*evaluation(*run.given)]
    run.train(2)
    return run.left(*seen, *evaluation(*run.given))


def read_by_all(strategy: tf.distribute.Strategy) -> Left:
    """All evaluate, sum a loss and read a slot."""
    run = Run(strategy)
    run.train(2)

    @tf.function
    def evaluation(rows: Any, wanted: Any) -> Any:
        losses = strategy.run(run.net.loss, (rows, wanted))
        return strategy.reduce("SUM", losses, axis=None), run.length()

    seen = [*evaluation(*run.given)]
    run.train(2)
    return run.left(*seen, *evaluation(*run.given))


def read_in_anothers_step(strategy: tf.distribute.Strategy) -> Left:
    """A step of one net reads a slot of another, on the chief alone."""
    run, other = Run(strategy), Run(strategy)
    run.train(2)

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        length = run.length() if run.is_chief else tf.constant(0.0)
        strategy.run(other.net.train, (rows, wanted))
        return length

    seen = []
    for _ in range(2):
        seen.append(step(*run.given))
        run.train(1)
    return Left([*run.net.state, *other.net.state], seen)


def smaller_on_one(strategy: tf.distribute.Strategy) -> Left:
    """The chief alone traces the step again, for a batch of another size."""
    run = Run(strategy)
    run.train(2)
    rows, wanted = (strategy.experimental_local_results(each)[0] for each in run.given)
    own = slice(3) if run.is_chief else slice(None)
    for _ in range(2):
        run.step(rows[own], wanted[own])
    return run.left()


def looked_at_anothers_slots(strategy: tf.distribute.Strategy) -> Left:
    """A second optimizer of the same kind, of which the chief traced a function before its step."""
    run = Run(strategy)
    run.train(2)
    first = run.net.optimizer
    with strategy.scope():
        run.net.optimizer = adam()()
        run.net.build_optimizer()
    evaluation = tf.function(run.length)
    if run.is_chief:
        evaluation()
    run.step = run.step_of()
    run.train(2)
    return Left([*run.net.state, *(v.value for v in first.variables)], [evaluation()])


def reset_one_after_the_other(strategy: tf.distribute.Strategy) -> Left:
    """All workers read each slot, and write it; the chief is ahead."""
    run = Run(strategy)
    run.train(2)
    for variable in run.net.optimizer.variables:
        if not run.is_chief:
            time.sleep(0.1)
        variable.assign(-tf.convert_to_tensor(variable))
    run.train(1)
    return run.left()


def written_where_nothing_is_summed(strategy: tf.distribute.Strategy) -> Left:
    """Functions that sum nothing read slots and write them, more than once; the chief is ahead."""
    run = Run(strategy)
    run.train(2)
    slots = [v for v in run.net.optimizer.variables if v.shape.rank == 2]

    @tf.function
    def on_replicas() -> None:
        def scaled() -> None:
            for one, other in itertools.pairwise(slots):
                one.assign(one.value * 0.5 + tf.reduce_sum(other.value))
            slots[0].assign(slots[0].value - slots[-1].value[0, 0])

        strategy.run(scaled)

    @tf.function
    def as_a_whole() -> tf.Tensor:
        before = tf.norm(slots[0].value)
        slots[0].value.assign(slots[0].value * 3.0)
        return tf.norm(slots[0].value) - before

    seen = []
    for _ in range(3):
        if not run.is_chief:
            time.sleep(0.2)
        on_replicas()
        seen.append(as_a_whole())
    run.train(1)
    return run.left(*seen)


def failed_in_its_second_update(strategy: tf.distribute.Strategy) -> Left:
    """A step updates twice and fails between; its slots are read, and the training goes on."""
    run = Run(strategy)

    def checked(rows: Any, wanted: Any, factor: Any) -> Any:
        loss = tf.debugging.check_numerics(run.net.loss(rows, wanted) * factor, "the loss")
        with tf.control_dependencies([loss]):
            return run.net.train(tf.identity(rows), wanted)

    @tf.function
    def step(rows: Any, wanted: Any, factor: Any) -> Any:
        strategy.run(run.net.train, (rows, wanted))
        return strategy.run(checked, (rows, wanted, factor))

    step(*run.given, tf.constant(1.0))
    try:
        step(*run.given, tf.constant(np.nan, tf.float32))
    except tf.errors.InvalidArgumentError as error:
        print("failed:", error.message, flush=True)
    lengths = [tf.norm(v.value) for v in run.net.optimizer.variables if v.shape.rank]
    step(*run.given, tf.constant(1.0))
    return run.left(*lengths)


def traced_once_more(strategy: tf.distribute.Strategy) -> Left:
    """The chief alone traces another step of the same weights when slots live in shards."""
    run = Run(strategy)
    run.train(2)
    if run.is_chief:
        run.step_of().get_concrete_function(*run.given)
    run.train(2)
    return run.left()


def refused_once_more(strategy: tf.distribute.Strategy) -> Left:
    """The chief alone traces a step again of which nothing is sharded; all train on with another.

    The other step trains the same weights, and can be shared.
    """
    run = Run(strategy)

    def looped(rows: Any, wanted: Any) -> None:
        with tf.GradientTape() as tape:
            loss = run.net.loss(rows, wanted)
        gradients = tape.gradient(loss, run.net.weights)

        def write(weight: Any, gradient: Any) -> None:
            # What is done in a loop is not shared; copies stay alike.
            def turn(number: Any) -> Any:
                weight.assign_sub(0.01 * gradient)
                return number + 1

            tf.while_loop(lambda number: number < 2, turn, (0,))

        def merged(strategy: Any, gradients: Any) -> None:
            for gradient, weight in zip(gradients, run.net.weights, strict=True):
                summed = strategy.extended.reduce_to("SUM", gradient, weight)
                strategy.extended.update(weight, write, args=(summed,))

        tf.distribute.get_replica_context().merge_call(merged, args=(gradients,))

    @tf.function
    def step(rows: Any, wanted: Any) -> None:
        strategy.run(looped, (rows, wanted))

    rows, wanted = (strategy.experimental_local_results(each)[0] for each in run.given)
    step(rows, wanted)
    own = slice(3) if run.is_chief else slice(None)
    step(rows[own], wanted[own])
    run.train(2)
    return run.left()


def moved_apart_first(strategy: tf.distribute.Strategy) -> Left:
    """Each worker moves the weights by gradients of its own, before and between the train steps."""
    run = Run(strategy)

    def own(rows: Any, wanted: Any) -> None:
        with tf.GradientTape() as tape:
            loss = run.net.loss(rows, wanted)
        gradients = tape.gradient(loss, run.net.weights)
        for weight, gradient in zip(run.net.weights, gradients, strict=True):
            weight.assign_sub(0.01 * gradient)

    local = tf.function(lambda rows, wanted: strategy.run(own, (rows, wanted)))
    for _ in range(2):
        local(*run.given)
        run.train(2)
    return run.left()


def moved_apart_by_hand(strategy: tf.distribute.Strategy) -> Left:
    """One worker gives a weight another value, before it trains with the others."""
    run = Run(strategy)
    if run.is_chief:
        run.net.weights[0].assign_add(tf.ones_like(run.net.weights[0]))
    run.train(3)
    return run.left()


CASES = {
    case.__name__: case
    for case in (
        traced_early,
        looked_at_early,
        read_in_step,
        evaluated_alone,
        evaluated_by_all,
        read_by_all,
        read_in_anothers_step,
        smaller_on_one,
        looked_at_anothers_slots,
        reset_one_after_the_other,
        written_where_nothing_is_summed,
        failed_in_its_second_update,
        traced_once_more,
        refused_once_more,
        moved_apart_first,
        moved_apart_by_hand,
    )
}


def compared(strategy: tf.distribute.Strategy, name: str) -> dict[str, Any]:
    """What differs between a case without the flag and with it, how long it took, and reasons."""
    numbers, seconds = [], []
    for is_on in (False, True):
        turn_off()
        if is_on:
            turn_on(agreement_seconds=AGREEMENT_SECONDS, read_seconds=10.0)
        tf_wu_shard.clear_reports()
        tf.keras.utils.set_random_seed(11)
        started = time.monotonic()
        left = CASES[name](strategy)
        seconds.append(time.monotonic() - started)
        turn_off()
        numbers.append([np.array(v.numpy()) for v in (*left.variables, *left.seen)])
    pairs = zip(*numbers, strict=True)
    reports = tf_wu_shard.reports()
    return {
        "apart": [i for i, (a, b) in enumerate(pairs) if a.tobytes() != b.tobytes()],
        "in_shards": sum(in_shards(v) for v in left.variables),
        "verdicts": [report.verdict for report in reports],
        "reasons": sorted({one.reason for report in reports for one in report.left_alone}),
        "seconds": seconds,
    }


def read_by_the_chief(run: Run) -> None:
    """A second step reads a slot on the chief alone, after a first one made shards of them."""

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        length = run.length() if run.is_chief else tf.constant(0.0)
        run.strategy.run(run.net.train, (rows, wanted))
        return length

    step(*run.given)


def written_by_each(run: Run) -> None:
    """Each worker writes a slot in shards with what it makes of a batch of its own."""

    def own(rows: Any, factor: Any) -> None:
        slot = next(v for v in run.net.optimizer.variables if v.shape.rank == 2)
        slot.assign(slot.value * factor + tf.reduce_mean(rows))

    @tf.function
    def step(rows: Any, factor: Any) -> None:
        run.strategy.run(own, (rows, factor))

    # A number may be given: it is the same on all workers, as it is in any step of theirs.
    step(0.5, tf.constant(0.5))
    step(run.given[0], tf.constant(0.5))


REFUSED = {case.__name__: case for case in (read_by_the_chief, written_by_each)}


def refused(strategy: tf.distribute.Strategy, name: str) -> None:
    """Prints why a case ends a worker, as one line of JSON."""
    turn_on(agreement_seconds=AGREEMENT_SECONDS)
    run = Run(strategy)
    run.train(2)
    try:
        REFUSED[name](run)
    except StorageError as error:
        print(json.dumps(str(error)), flush=True)
        raise


def main(what: str, *names: str) -> None:
    """Prints, as one line of JSON, what came of it."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if what == "refused":
        refused(strategy, *names)
    else:
        print(json.dumps({name: compared(strategy, name) for name in names or CASES}))


if __name__ == "__main__":
    main(*sys.argv[1:])
