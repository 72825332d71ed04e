"""TPU programs that are left as they are, with a reason for each weight, and sums that stay.

What no emulated core runs is only traced: no TPU and no second core is needed for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence import in_process
from tf_wu_shard.tensorflow_private.tpu_strategy import AbsentTPU, tpu_topology
from tf_wu_shard.tensorflow_private.traced_only import make_traced_only
from tf_wu_shard.topology import parse_topology

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

StrategyOf = Callable[..., tf.distribute.TPUStrategy]

# Chips of two cores each, and more of them than any emulated strategy of the tests has replicas: a
# program of as many replicas would be lowered for those.
PLACE = parse_topology("v3:4x4")
WIDTH, CLASSES = 24, 16


@pytest.fixture(autouse=True)
def flag() -> Iterator[None]:
    """Off afterwards, whatever happened."""
    yield
    in_process.turn_off()


def only_traced(cores: int = 1, **keywords: Any) -> tf.distribute.TPUStrategy:
    """A strategy that only traces, each of its replicas over so many cores of one chip."""
    topology = tpu_topology(PLACE.mesh, PLACE.coordinates)
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        topology, [1, 1, 1, cores], num_replicas=PLACE.num_devices // cores
    )
    cluster = AbsentTPU(PLACE.num_devices, topology)
    strategy = tf.distribute.TPUStrategy(
        cluster, experimental_device_assignment=assignment, **keywords
    )
    make_traced_only(strategy.extended)
    return strategy


def build() -> keras.Model:
    """Kernels of which every one of a few replicas gets a tile."""
    return in_process.dense_model(WIDTH, 64, CLASSES)


def custom_step(
    strategy: tf.distribute.TPUStrategy,
    model: keras.Model,
    also: Callable[[tf.Tensor], object] = lambda loss: None,
) -> Any:
    """A train step that does something more with its loss in the replicas."""
    inputs, targets = in_process.examples(4, WIDTH, CLASSES)

    def replica() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        also(loss)

    def step() -> None:
        strategy.run(replica)

    return tf.function(step)


def on_the_host(loss: tf.Tensor) -> None:
    tf.compat.v1.tpu.outside_compilation(lambda value: tf.print(value), loss)


def on_the_host_in_a_branch(loss: tf.Tensor) -> None:
    tf.cond(loss > 0, lambda: on_the_host(loss), lambda: None)


def from_tables(loss: tf.Tensor) -> None:
    tf.raw_ops.SendTPUEmbeddingGradients(
        inputs=[tf.fill([8, 4], loss)], learning_rates=[], config=""
    )


def names_without_numbers(graph: Any) -> list[str]:
    """Every node as text, without the numbers that tell a name from those used before."""
    return sorted(re.sub(r"[_-]\d+", "", str(node)) for node in graph.as_graph_def().node)


CASES: dict[str, tuple[dict[str, Any], Callable[[tf.Tensor], object], str]] = {
    "two cores a replica": (
        {"cores": 2, "experimental_spmd_xla_partitioning": False},
        lambda loss: None,
        "each replica spreads over 2 cores",
    ),
    "SPMD": (
        {"cores": 2, "experimental_spmd_xla_partitioning": True},
        lambda loss: None,
        "XLA partitions the program itself over 2 cores a replica (SPMD)",
    ),
    "outside compilation": ({}, on_the_host, "runs on the host (outside compilation)"),
    "outside compilation in a branch": (
        {},
        on_the_host_in_a_branch,
        "runs on the host (outside compilation)",
    ),
    "TPUEmbedding": ({}, from_tables, "it uses TPU embeddings (SendTPUEmbeddingGradients"),
}


@pytest.mark.parametrize(("how", "also", "reason"), CASES.values(), ids=CASES)
def test_a_program_that_is_not_only_its_replicas_is_left_alone_with_a_reason_for_each_weight(
    how: dict[str, Any], also: Callable[[tf.Tensor], object], reason: str
) -> None:
    traced = []
    for on in (False, True):
        tf_wu_shard.clear_reports()
        if on:
            in_process.turn_on()
        model = in_process.compiled(only_traced(**how), build, built=True)
        traced.append(custom_step(model.distribute_strategy, model, also).get_concrete_function())
    (report,) = tf_wu_shard.reports()
    assert report.verdict == "nothing sharded"
    names = {weight.path.replace("/", "") for weight in model.trainable_variables}
    assert {left.name.replace("/", "") for left in report.left_alone} == names
    assert all(reason in left.reason for left in report.left_alone)
    unsharded, untouched = (names_without_numbers(function.graph) for function in traced)
    assert untouched == unsharded


@pytest.mark.parametrize(("how", "also", "reason"), CASES.values(), ids=CASES)
def test_with_on_refusal_raise_the_reason_is_an_error(
    how: dict[str, Any], also: Callable[[tf.Tensor], object], reason: str
) -> None:
    in_process.turn_on(on_refusal="raise")
    model = in_process.compiled(only_traced(**how), build, built=True)
    step = custom_step(model.distribute_strategy, model, also)
    with pytest.raises(tf_wu_shard.NothingShardedError, match=re.escape(reason)):
        step.get_concrete_function()


def test_with_on_refusal_raise_a_step_of_which_nothing_is_sharded_is_an_error(
    emulated: StrategyOf,
) -> None:
    in_process.turn_on(min_elements=None, on_refusal="raise")
    model = in_process.compiled(emulated(2), build, built=True)
    with pytest.raises(tf_wu_shard.NothingShardedError, match="below min_elements=2048"):
        in_process.step_of(emulated(2), model)()


def test_copies_that_differ_when_the_step_is_traced_are_left_to_each_core(
    emulated: StrategyOf,
) -> None:
    weights = []
    for on in (False, True):
        tf_wu_shard.clear_reports()
        if on:
            in_process.turn_on()
        keras.utils.set_random_seed(7)
        model = in_process.compiled(emulated(2), build, built=True)
        # Eager code did it: it is seen in no graph.
        apart = model.trainable_variables[0].value.values
        apart[1].assign(2.0 * apart[0])
        step = in_process.step_of(emulated(2), model)
        step()
        step()
        weights.append([c.numpy() for w in model.trainable_variables for c in w.value.values])
    unsharded, sharded = weights
    # oneDNN rounds otherwise where it sees a variable behind an operand, see tpu_test.
    for one, other in zip(sharded, unsharded, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert not np.allclose(sharded[0], sharded[1], rtol=0.1)
    (report,) = tf_wu_shard.reports()
    (left,) = (one for one in report.left_alone if "the same values" in one.reason)
    assert left.name == model.trainable_variables[0].path
    assert report.verdict == "partly sharded"


def test_a_program_that_trains_nothing_may_use_the_host_unmentioned() -> None:
    in_process.turn_on(on_refusal="raise")
    strategy = only_traced()
    with strategy.scope():
        total = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ)

    def replica() -> None:
        total.assign_add(1.0)
        on_the_host(total.read_value())

    def count() -> None:
        strategy.run(replica)

    tf.function(count).get_concrete_function()
    assert not tf_wu_shard.reports() or "count" not in str(tf_wu_shard.reports()[-1])


def test_sums_of_metrics_and_synchronized_normalizations_stay_and_give_what_they_gave(
    emulated: StrategyOf,
) -> None:
    strategy = emulated(2)
    found = []
    for on in (False, True):
        keras.utils.set_random_seed(3)
        if on:
            in_process.turn_on()

        def build_normalized() -> keras.Model:
            layers = [
                # The gradient of a bias would be nothing but rounding noise.
                keras.layers.Dense(64, use_bias=False),
                keras.layers.BatchNormalization(synchronized=True),
                keras.layers.Dense(CLASSES),
            ]
            return keras.Sequential([keras.layers.Input((WIDTH,)), *layers])

        model = in_process.compiled(strategy, build_normalized, built=True)
        with strategy.scope():
            total = tf.Variable(0.0, trainable=False)

        def count(loss: tf.Tensor, total: Any = total) -> None:
            context = tf.distribute.get_replica_context()
            total.assign_add(context.all_reduce("sum", loss))

        step = custom_step(strategy, model, count)
        for _ in range(3):
            step()
        types = [op.type for op in step.get_concrete_function().graph.get_operations()]
        values = [np.array(v.numpy()) for v in (*in_process.state(model), total)]
        found.append(
            (
                types.count("CrossReplicaSum"),
                sum(map(in_process.in_shards, in_process.state(model))),
                values,
            )
        )
    (sums, none, unsharded), (left, sharded, values) = found
    # Both kernels and their moments; of all sums, only those of the two gradients are gone.
    assert (none, sharded) == (0, 2 * 3)
    assert left == sums - 2
    for one, other in zip(unsharded, values, strict=True):
        # Values of the order of 1; oneDNN may round a product of a gathered matrix otherwise.
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
