"""Replicas begin one after the other where that is proved to block nobody, and compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.weight_update.rewrite.stages import Stages, run_stages
from tf_wu_shard.graph.ordering import ordered_ops
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.reachable import reachable
from tf_wu_shard.report.report import as_text
from tf_wu_shard.weight_update.plan import planner
from tf_wu_shard.weight_update.rewrite.staggering import summed

Strategies = Callable[[int], tf.distribute.MirroredStrategy]
Between = Callable[[Any], Any]


def unchanged(value: Any) -> Any:
    return value


def mean_over_replicas(value: Any) -> Any:
    context = tf.distribute.get_replica_context()
    return value - context.all_reduce(tf.distribute.ReduceOp.MEAN, value)


def sum_of_shards(value: Any) -> Any:
    """What only replicas of one process may do: each takes what another computed."""
    context = tf.distribute.get_replica_context()

    def merged(strategy: Any, own: Any) -> Any:
        return tf.add_n(strategy.experimental_local_results(own))

    return value - context.merge_call(merged, args=(value,))


def looked_up_in_python(value: Any) -> Any:
    return tf.ensure_shape(tf.py_function(lambda v: v, [value], tf.float32), value.shape)


def looked_up_in_numpy(value: Any) -> Any:
    """TensorFlow calls it stateless, and it may wait all the same."""

    @tf.custom_gradient
    def passed_on(value: Any) -> Any:
        looked_up = tf.numpy_function(lambda v: v, [value], tf.float32, stateful=False)
        return tf.ensure_shape(looked_up, value.shape), lambda gradient: gradient

    return passed_on(value)


def activated(value: Any) -> Any:
    """A product, a bias and this make one kernel, which rounds otherwise than three."""
    return tf.nn.elu(tf.nn.bias_add(value, tf.linspace(-36.0, -30.0, 256)))


def rescaled(value: Any) -> Any:
    """Grappler puts the constants together."""
    return (value / 255.0 - 0.449) / 0.226


@tf.function
def noisy(value: Any) -> Any:
    return value + tf.random.normal(value.shape) * 0.0


class Step:
    """A step on batches that are its arguments."""

    def __init__(self, strategy: Any, between: Between, before: Between = unchanged) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.weight = tf.Variable(tf.ones([64, 256]), name="w")
            self.optimizer = keras.optimizers.Adam(0.1)
            self.optimizer.build([self.weight])

        def replica(batch: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(between(tf.matmul(before(batch), self.weight)) ** 2)
            self.optimizer.apply_gradients([(tape.gradient(loss, self.weight), self.weight)])

        self.replica = replica
        self.step = tf.function(lambda batch: strategy.run(replica, args=(batch,)))
        self.batches = strategy.experimental_distribute_values_from_function(
            lambda context: tf.random.stateless_uniform(
                [8, 64], seed=[1, context.replica_id_in_sync_group]
            )
        )

    def staged(self, replica: Callable[..., None] | None = None, *arguments: Any) -> Stages:
        """The stages of the step, or of one in which replicas run something else."""
        step, given = self.step, arguments or (self.batches,)
        if replica is not None:
            step = tf.function(lambda *own: self.strategy.run(replica, args=own))
        graph = step.get_concrete_function(*given).graph
        graph.keeps = self
        return run_stages(graph)


@pytest.fixture
def staggered(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets so many replicas compute gradients at a time, however small these are."""
    monkeypatch.setattr(InProcess, "preferences", Preferences(min_elements=1, bucket_bytes=1))

    def so_many(at_a_time: int) -> None:
        monkeypatch.setattr(planner, "replicas_at_a_time", lambda *_: at_a_time)

    return so_many


def assert_all_begin_at_once(stages: Stages) -> None:
    """One at a time was planned, and could not be proved to block nobody."""
    assert stages.plan.at_a_time == 1
    report = stages.sharding.report("step")
    assert report.at_a_time == 0
    assert "all of them compute gradients at once" in as_text(report)


@pytest.mark.parametrize("between", [unchanged, noisy])
@pytest.mark.parametrize("at_a_time", [1, 2])
def test_a_replica_begins_when_sums_hold_the_gradients_of_those_before_it(
    strategy_of: Strategies,
    staggered: Callable[[int], None],
    between: Between,
    at_a_time: int,
) -> None:
    staggered(at_a_time)
    stages = Step(strategy_of(4), between).staged()
    report = stages.sharding.report("step")
    assert report.at_a_time == at_a_time
    assert f"{at_a_time} at a time compute gradients" in as_text(report)
    assert report.notes == ()
    nodes = {node.name: node for node in stages.result.nodes}

    def needed(name: str) -> list[str]:
        return [text.lstrip("^").partition(":")[0] for text in nodes[name].input]

    assert len(ordered_ops(stages.result.nodes)) == len(nodes)
    (reduction,) = stages.plan.variables[0].reductions
    operands = [value.op for value in reduction.operands]
    behind = [set(reachable([name], needed)) for name in operands]
    assert [[name in own for name in operands] for own in behind] == [
        [other == copy or other + at_a_time <= copy for other in range(4)] for copy in range(4)
    ]
    taking = [node for node in nodes.values() if node.op == "MatMul" and node.name in behind[3]]
    assert not any(text[0] == "^" for node in taking for text in node.input), "Grappler fuses them"
    additions = [sum(nodes[name].op == "AddV2" for name in own) for own in behind]
    before = [max(0, copy - at_a_time) for copy in range(4)]
    assert additions == [4 * count for count in before], "each of four shards is a sum of its own"


@pytest.mark.parametrize(
    "between",
    [mean_over_replicas, sum_of_shards, looked_up_in_python, looked_up_in_numpy],
)
def test_no_replica_is_held_back_that_another_may_wait_for(
    strategy_of: Strategies, staggered: Callable[[int], None], between: Between
) -> None:
    staggered(1)
    assert_all_begin_at_once(Step(strategy_of(2), between).staged())


def test_one_batch_for_all_replicas_is_the_batch_of_each(
    strategy_of: Strategies, staggered: Callable[[int], None]
) -> None:
    staggered(1)
    made = Step(strategy_of(2), unchanged)
    made.batches = tf.ones([8, 64])
    assert made.staged().sharding.report("step").at_a_time == 1


def test_a_gathered_weight_needs_every_replica(
    strategy_of: Strategies, staggered: Callable[[int], None]
) -> None:
    """The first update leads from an argument to what the forward pass reads."""
    staggered(1)
    made = Step(strategy_of(2), unchanged)

    def decayed(batch: Any, rate: Any) -> None:
        made.weight.assign(made.weight * rate)
        made.replica(batch)

    stages = made.staged(decayed, made.batches, tf.constant(0.5))
    assert_all_begin_at_once(stages)
    names = [node.name for node in stages.result.nodes]
    assert not [name for name in names if "staggered" in name or "wu_shard_batch" in name]


def test_who_is_handed_gradients_computes_none(
    strategy_of: Strategies, staggered: Callable[[int], None]
) -> None:
    staggered(1)
    made = Step(strategy_of(2), unchanged)

    def apply(gradient: Any) -> None:
        made.optimizer.apply_gradients([(tf.clip_by_value(gradient, -1.0, 1.0), made.weight)])

    gradients = made.strategy.experimental_distribute_values_from_function(
        lambda context: tf.ones([64, 256]) * float(context.replica_id_in_sync_group)
    )
    assert_all_begin_at_once(made.staged(apply, gradients))


def test_gradients_without_a_batch_wait_for_nobody(
    strategy_of: Strategies, staggered: Callable[[int], None]
) -> None:
    staggered(1)
    made = Step(strategy_of(2), unchanged)

    def on_noise(batch: Any) -> None:
        made.replica(tf.random.normal([8, 64]))

    assert_all_begin_at_once(made.staged(on_noise))


@pytest.mark.parametrize(
    ("before", "between"), [(unchanged, unchanged), (unchanged, activated), (rescaled, activated)]
)
def test_staggered_replicas_train_to_the_same_bits(
    strategy_of: Strategies, staggered: Callable[[int], None], before: Between, between: Between
) -> None:
    staggered(1)
    found: list[Any] = []
    for flag in (False, True):
        tf.config.optimizer.set_experimental_options({"weight_update_sharding": flag})
        # A sum of two has one order.
        made = Step(strategy_of(2), between, before)
        for _ in range(3):
            made.step(made.batches)
        found.append(np.asarray(made.weight))
        names = {
            op.name for op in made.step.get_concrete_function(made.batches).graph.get_operations()
        }
        assert any("staggered" in name for name in names) == flag
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": False})
    np.testing.assert_array_equal(found[0], found[1])


class Node(NamedTuple):
    """As much of a NodeDef as is asked for."""

    name: str
    op: str
    input: tuple[str, ...] = ()


def test_sums_count_for_the_last_replica_whose_gradients_they_hold() -> None:
    nodes = [
        Node("size", "Const"),
        Node("cut_0", "Split", ("size", "g0:1")),
        Node("cut_1", "Split", ("size", "g1")),
        Node("sum_1", "AddV2", ("cut_0", "cut_1:1")),
        Node("sum_2", "AddV2", ("sum_1", "g2")),
        Node("scaled", "Mul", ("sum_2", "rate")),
        Node("behind", "Identity", ("g0", "^rate")),
        Node("late_size", "Const", ("^rate",)),
        Node("by_late_size", "Split", ("late_size", "g0")),
    ]
    found = summed([["g0"], ["g1", "h1"], ["g2"]], nodes)
    assert found == [["cut_0"], ["h1", "sum_1"], ["sum_2"]]


def test_gradients_that_are_not_summed_stand_for_themselves() -> None:
    assert summed([["g0"], ["g1"]], [Node("size", "Const")]) == [["g0"], ["g1"]]
