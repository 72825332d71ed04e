"""What `emulated_tpu_strategy` makes: replicas, variables, host loops, saved programs."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.emulation import replicas
from tests.emulation.replicas import number
from tests.project.imports import ROOT
from tf_wu_shard.emulation import EmulationError, emulated_tpu_strategy
from tf_wu_shard.errors import OptionError

Strategies = Callable[[int], tf.distribute.TPUStrategy]

OWN = np.array([1, 2, 4, 8], np.float32)


def total(strategy: tf.distribute.Strategy, function: Callable[..., Any], *args: Any) -> tf.Tensor:
    return strategy.reduce("SUM", strategy.run(function, args=args), axis=None)


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "2", True, None])
def test_the_number_of_replicas_is_a_positive_integer(wrong: Any) -> None:
    with pytest.raises(OptionError, match=f"integer of at least 1, not {re.escape(repr(wrong))}"):
        emulated_tpu_strategy(wrong)


def test_a_topology_has_a_device_for_each_replica() -> None:
    with pytest.raises(OptionError, match="'v5e:2x2' has 4 devices, not 2"):
        emulated_tpu_strategy(2, "v5e:2x2")
    with pytest.raises(OptionError, match="v5e:7q"):
        emulated_tpu_strategy(2, "v5e:7q")
    strategy = emulated_tpu_strategy(4, "v5e:2x2")
    assert strategy.num_replicas_in_sync == 4
    assert replicas.run(strategy, number) == [0, 1, 2, 3]


def test_it_is_a_tpu_strategy(emulated: Strategies) -> None:
    strategy = emulated(2)
    assert type(strategy) is tf.distribute.TPUStrategy
    assert strategy.num_replicas_in_sync == 2


@pytest.mark.parametrize(
    ("before", "message"),
    [
        pytest.param("", "", marks=pytest.mark.slow),
        ("tf.constant(1)", "2 replicas and their host need 3 logical .* started with 1; make"),
        ("split(2); tf.constant(1)", "2 replicas and their host need 3 logical CPU devices"),
        pytest.param("split(3); tf.constant(1)", "", marks=pytest.mark.slow),
        pytest.param("split(1)", "", marks=pytest.mark.slow),
    ],
)
def test_devices_are_made_unless_tensorflow_has_started(before: str, message: str) -> None:
    script = f"""
import tensorflow as tf
from tf_wu_shard.emulation import EmulationError, emulated_tpu_strategy
def split(parts):
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * parts
    tf.config.set_logical_device_configuration(cpu, devices)
{before}
try:
    strategy = emulated_tpu_strategy(2)
    print(strategy.num_replicas_in_sync, end="")
except EmulationError as error:
    print("refused:", error, end="")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert re.match(f"refused: {message}" if message else "2$", done.stdout), done.stdout


def test_a_host_loop_that_makes_its_iterator_itself_does_not_run_out_of_threads(
    tmp_path: pathlib.Path,
) -> None:
    # With as many threads as two cores have, those that wait for an iterator's next batch keep
    # the ones that would bring it from running; so it happened within a few of these epochs.
    script = """
import tensorflow as tf
from tf_wu_shard.emulation import emulated_tpu_strategy
strategy = emulated_tpu_strategy(4)
batches = strategy.experimental_distribute_dataset(tf.data.Dataset.range(24).batch(8))
@tf.function
def epoch():
    total = tf.constant(0, tf.int64)
    iterator = iter(batches)
    for _ in tf.range(3):
        total += strategy.reduce("SUM", strategy.run(tf.reduce_sum, (next(iterator),)), axis=None)
    return total
for _ in range(30):
    assert int(epoch()) == 276
print(tf.config.threading.get_inter_op_parallelism_threads(), end="")
"""
    (tmp_path / "loop.py").write_text(script)
    done = subprocess.run(
        [sys.executable, tmp_path / "loop.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert int(done.stdout) >= 8


def test_one_replica_is_enough(emulated: Strategies) -> None:
    strategy = emulated(1)

    def function(x: tf.Tensor) -> tf.Tensor:
        return replicas.context().all_reduce("mean", x) + number()

    assert replicas.run(strategy, function, np.ones([1], np.float32)) == [1]


def test_strategies_of_different_sizes_work_side_by_side(emulated: Strategies) -> None:
    @tf.function
    def both() -> Any:
        return total(emulated(4), number) + total(emulated(2), number)

    assert float(both()) == 7


def test_a_step_without_results_still_has_its_effects(four: tf.distribute.TPUStrategy) -> None:
    with four.scope():
        counter = tf.Variable(0.0)

    def function() -> None:
        counter.assign_add(1.0)

    @tf.function
    def step() -> None:
        four.run(function)

    step()
    step()
    assert [float(one) for one in counter.values] == [2] * 4


def test_results_may_be_nested(four: tf.distribute.TPUStrategy) -> None:
    @tf.function
    def step() -> Any:
        return four.run(lambda: {"a": (number(), number() + 1), "b": [number() * 2], "c": None})

    found = step()
    assert replicas.each(four, found["a"][1]) == [1, 2, 3, 4]
    assert replicas.each(four, found["b"][0]) == [0, 2, 4, 6]


@pytest.mark.parametrize("loop", ["eager", "dataset", "iterator"])
def test_host_loops_feed_uneven_batches(four: tf.distribute.TPUStrategy, loop: str) -> None:
    numbers = tf.data.Dataset.range(1, 23, output_type=tf.float32).batch(8)
    batches = four.experimental_distribute_dataset(numbers)
    with four.scope():
        seen = tf.Variable(0, aggregation=tf.VariableAggregation.SUM)

    def function(batch: tf.Tensor) -> tf.Tensor:
        seen.assign_add(tf.size(batch))
        return tf.reduce_sum(batch)

    @tf.function
    def step(batch: tf.Tensor) -> tf.Tensor:
        return total(four, function, batch)

    @tf.function
    def epoch(source: Any) -> tf.Tensor:
        result = 0.0
        if loop == "dataset":
            for batch in source:
                result += total(four, function, batch)
        else:
            for _ in tf.range(3):
                result += total(four, function, next(source))
        return result

    if loop == "eager":
        result = sum(float(step(batch)) for batch in batches)
    else:
        result = float(epoch(batches if loop == "dataset" else iter(batches)))
    assert result == 22 * 23 / 2
    assert int(seen.numpy()) == 22


def test_values_are_gathered_and_reduced(four: tf.distribute.TPUStrategy) -> None:
    @tf.function
    def step() -> Any:
        return four.run(lambda: tf.reshape(number(), [1]))

    assert four.gather(step(), axis=0).numpy().tolist() == [0, 1, 2, 3]
    assert four.reduce("MEAN", step(), axis=None).numpy() == 1.5
    assert four.reduce("MEAN", step(), axis=0).numpy() == 1.5


def test_a_strategy_runs_a_traced_function_directly(four: tf.distribute.TPUStrategy) -> None:
    function = tf.function(lambda x: x * 2)
    assert replicas.each(four, four.run(function, (replicas.spread(four, OWN),))) == [2, 4, 8, 16]


def traced_step(strategy: tf.distribute.TPUStrategy) -> tuple[Any, tf.Variable]:
    """A traced step with an exchange in a nested function."""
    with strategy.scope():
        weight = tf.Variable(1.0)

    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return replicas.context().all_reduce("sum", x * weight)

    def function(x: tf.Tensor) -> tf.Tensor:
        return inner(x) + number()

    @tf.function(input_signature=[tf.TensorSpec([])])
    def step(x: tf.Tensor) -> tf.Tensor:
        return total(strategy, function, x)

    return step, weight


def test_python_keeps_the_graph_in_the_form_of_a_tpu(four: tf.distribute.TPUStrategy) -> None:
    step, _ = traced_step(four)
    graph = step.get_concrete_function().graph
    found = {op.type for op in graph.get_operations()}
    assert {"TPUReplicateMetadata", "TPUReplicatedInput", "TPUReplicatedOutput"} <= found
    assert not any(op.name.startswith("replica_") for op in graph.get_operations())
    assert float(step(2.0)) == 38


def test_a_saved_model_holds_the_form_of_a_tpu(
    four: tf.distribute.TPUStrategy, tmp_path: pathlib.Path
) -> None:
    module = tf.Module()
    module.step, module.weight = traced_step(four)
    assert float(module.step(2.0)) == 38
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(tmp_path), options=options)
    saved = (tmp_path / "saved_model.pb").read_bytes()
    assert b"TPUReplicateMetadata" in saved and b"CrossReplicaSum" in saved
    assert b"all_replicas" not in saved and b"replica_1" not in saved
    # The process goes on with what it ran before.
    assert float(module.step(2.0)) == 38


@pytest.mark.usefixtures("four")
def test_a_function_traced_into_a_graph_of_tensorflow_1_stays_as_it_was_traced() -> None:
    @tf.function
    def step() -> tf.Tensor:
        return tf.compat.v1.tpu.replicate(lambda: tf.constant(1.0), [[]] * 4)[0][0]

    with tf.Graph().as_default() as graph:
        step()
    (definition,) = graph.as_graph_def().library.function
    assert "TPUReplicateMetadata" in {node.op for node in definition.node_def}


def test_a_checkpoint_restores_every_replicas_variable(
    four: tf.distribute.TPUStrategy, tmp_path: pathlib.Path
) -> None:
    step, weight = traced_step(four)
    path = tf.train.Checkpoint(weight=weight).save(str(tmp_path / "made"))
    weight.assign(7.0)
    tf.train.Checkpoint(weight=weight).restore(path)
    assert [float(one) for one in weight.values] == [1] * 4
    assert float(step(2.0)) == 38


def test_too_few_devices_are_found_out_when_a_step_is_traced(logical_cpus: list[str]) -> None:
    with pytest.raises(EmulationError, match="9 replicas and their host need 10 logical"):
        emulated_tpu_strategy(len(logical_cpus) + 1)
