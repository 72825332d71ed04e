"""TPU programs of TensorFlow 1 run in a plain session, and variables enter them by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.emulation import EmulationError, lower_graph_def

v1 = tf.compat.v1

REPLICAS = 3


def graph_of(step: Callable[..., Any]) -> tuple[Any, list[str]]:
    """A GraphDef of a program that is given the number of its replica, and its results' names."""
    with tf.Graph().as_default() as graph:
        numbers = [[tf.constant(float(replica))] for replica in range(REPLICAS)]
        results = v1.tpu.replicate(step, numbers)
        v1.global_variables_initializer()
        return graph.as_graph_def(), [result[0].name for result in results]


def run(graph_def: Any, fetches: Any, times: int = 1) -> Any:
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(lower_graph_def(graph_def), name="")
    config = v1.ConfigProto(device_count={"CPU": REPLICAS + 1})
    with v1.Session(graph=graph, config=config) as session:
        session.run("init")
        return [session.run(fetches) for _ in range(times)]


def counted(number: tf.Tensor) -> tf.Tensor:
    count = v1.get_variable("count", initializer=10.0, use_resource=True)
    with tf.control_dependencies([count.assign_add(1.0 + number)]):
        return count.read_value()


def test_each_replica_changes_a_copy_and_the_first_ones_is_kept() -> None:
    graph_def, results = graph_of(counted)
    found = run(graph_def, results, times=2)
    np.testing.assert_array_equal(found, [[11.0, 12.0, 13.0], [12.0, 13.0, 14.0]])


def test_the_host_sees_what_was_written_when_it_waits_for_the_program() -> None:
    graph_def, results = graph_of(counted)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        after = [graph.get_tensor_by_name(name).op for name in results]
        with tf.control_dependencies(after):
            handle = graph.get_tensor_by_name("count:0")
            read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        graph_def = graph.as_graph_def()
    assert run(graph_def, read.name, times=2) == [11.0, 12.0]


def test_replicas_sum_in_the_loop_of_a_program() -> None:
    def step(number: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return i + 1, total + v1.tpu.cross_replica_sum(number)

        return tf.while_loop(lambda i, _: i < 2, body, [0, counted(number)])[1]

    graph_def, results = graph_of(step)
    np.testing.assert_array_equal(run(graph_def, results), [[17.0, 18.0, 19.0]])


def test_the_graph_that_was_given_stays_as_it_was() -> None:
    graph_def, _ = graph_of(counted)
    before = graph_def.SerializeToString(deterministic=True)
    lower_graph_def(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_a_loop_of_tensorflow_1_is_refused_by_name() -> None:
    def step(number: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i: i < 3.0, lambda i: [i + 1.0], [number])

    v1.disable_control_flow_v2()
    try:
        graph_def, _ = graph_of(step)
    finally:
        v1.enable_control_flow_v2()
    with pytest.raises(EmulationError, match="cannot be emulated: a loop of TensorFlow 1"):
        lower_graph_def(graph_def)
