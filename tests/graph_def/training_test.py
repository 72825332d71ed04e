"""Sharded and unsharded trainings of TensorFlow 1's graphs, on four emulated replicas."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.graph_def import programs
from tests.graph_def.programs import Graph, Trained, v1


@functools.cache
def made(optimizer: str) -> Graph:
    return programs.graph(programs.optimizer_step(programs.OPTIMIZERS[optimizer]))


@functools.cache
def unsharded(optimizer: str) -> Trained:
    return programs.train(made(optimizer), made(optimizer).graph_def)


def assert_equal(one: Trained, other: Trained) -> None:
    """Bit for bit: emulated replicas sum in one order, and on shards every op is elementwise."""
    np.testing.assert_array_equal(one.losses, other.losses)
    assert one.values.keys() == other.values.keys()
    for name, value in one.values.items():
        np.testing.assert_array_equal(value, other.values[name], err_msg=name)


@pytest.mark.parametrize("optimizer", programs.OPTIMIZERS)
def test_a_sharded_training_is_the_unsharded_one_bit_for_bit(optimizer: str) -> None:
    graph = made(optimizer)
    rewritten = tf_wu_shard.rewrite_graph_def(graph.graph_def)
    assert [v.name for v in rewritten.report.variables] == ["w"]
    assert rewritten.report.emitted == {"reduce_scatter": 1, "all_gather": 1}
    assert_equal(programs.train(graph, rewritten.graph_def), unsharded(optimizer))
    before = programs.train(graph, graph.graph_def, steps=0).values["w"]
    assert (unsharded(optimizer).values["w"] != before).all()


def test_every_slot_is_a_shard_for_each_replica_and_is_read_whole() -> None:
    graph = made("adam")
    rewritten = tf_wu_shard.rewrite_graph_def(graph.graph_def)
    assert [v.name for v in rewritten.variables] == ["w", "w/Adam", "w/Adam_1"]
    slot = rewritten.variables[1]
    assert (slot.shape, slot.shard_shape) == ((60, 130), (16, 128))
    nodes = {node.name: node for node in rewritten.graph_def.node}
    assert slot.name not in nodes
    for shard in slot.shards:
        dims = nodes[shard].attr["shape"].shape.dim
        assert [dim.size for dim in dims] == [16, 128]
    assert slot.writers == ("w/Adam/Assign", "save/AssignVariableOp_7")
    values = programs.train(graph, rewritten.graph_def, also=[slot.value]).values
    np.testing.assert_array_equal(values[slot.value], unsharded("adam").values[slot.name])


def test_checkpoints_are_those_of_the_unsharded_graph_and_back(tmp_path: pathlib.Path) -> None:
    graph = made("adam")
    sharded = tf_wu_shard.rewrite_graph_def(graph.graph_def).graph_def
    first, second = str(tmp_path / "sharded"), str(tmp_path / "unsharded")
    programs.train(graph, sharded, save=first)
    programs.train(graph, graph.graph_def, save=second)
    shapes = dict(tf.train.list_variables(first))
    assert shapes == dict(tf.train.list_variables(second))
    assert shapes["w/Adam"] == [60, 130]
    resumed = [
        programs.train(graph, graph_def, restore=checkpoint)
        for graph_def in (sharded, graph.graph_def)
        for checkpoint in (first, second)
    ]
    for other in resumed[1:]:
        assert_equal(other, resumed[0])
    assert (resumed[0].values["w"] != unsharded("adam").values["w"]).any()


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: pathlib.Path) -> None:
    graph = made("momentum")
    checkpoint = str(tmp_path / "other")
    with tf.Graph().as_default(), v1.Session() as session:
        values = {
            name: v1.get_variable(f"at_{i}", initializer=np.zeros((130, 60), np.float32))
            for i, name in enumerate(graph.variables)
        }
        session.run(v1.global_variables_initializer())
        v1.train.Saver(values).save(session, checkpoint)
    sharded = tf_wu_shard.rewrite_graph_def(graph.graph_def).graph_def
    with pytest.raises(tf.errors.InvalidArgumentError):
        programs.train(graph, sharded, restore=checkpoint)


def test_replicas_of_a_torus_exchange_along_its_axes() -> None:
    assignment = programs.assignment("v5e:2x2")
    step = programs.optimizer_step(programs.OPTIMIZERS["momentum"])
    graph = programs.graph(step, device_assignment=assignment)
    rewritten = tf_wu_shard.rewrite_graph_def(graph.graph_def)
    assert rewritten.variables[0].devices == tuple(f"/task:0/device:TPU:{i}" for i in range(4))
    assert not rewritten.report.notes
    scatters = [n for n in rewritten.graph_def.node if n.op == "XlaReduceScatter"]
    assert len(scatters) == 2
    given = tf_wu_shard.rewrite_graph_def(
        made("momentum").graph_def, device_assignment=assignment
    ).graph_def
    assert sum(n.op == "XlaReduceScatter" for n in given.node) == 2
    # Pairs are added first: sums of four in another order differ by an ulp of 1, 1.2e-7, or so.
    sharded = programs.train(graph, rewritten.graph_def)
    for name, value in unsharded("momentum").values.items():
        np.testing.assert_allclose(sharded.values[name], value, rtol=1e-6, atol=5e-7)


def test_gathers_in_bfloat16_leave_the_shards_exact() -> None:
    graph = made("gradient_descent")
    options = tf_wu_shard.ShardingOptions(gather_dtype="bfloat16")
    rewritten = tf_wu_shard.rewrite_graph_def(graph.graph_def, options)
    sharded = programs.train(graph, rewritten.graph_def, steps=1).values["w"]
    whole = programs.train(graph, graph.graph_def, steps=1).values["w"]
    # A bfloat16 has 8 bits: the forward pass is rounded by 2^-8, of which a step is a tenth and
    # less; had the stored weights been rounded, they would be off by 2^-9 of up to 4.
    assert 0 < np.abs(sharded - whole).max() < 1e-4


def test_a_weight_that_the_host_looks_up_stays_whole_beside_its_sharded_slot() -> None:
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        shape, options = [programs.INPUTS, programs.OUTPUTS], {"use_resource": True}
        w = v1.get_variable("w", shape, initializer=v1.ones_initializer(), **options)
        slot = v1.get_variable("slot", shape, initializer=v1.zeros_initializer(), **options)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
        gradient = v1.tpu.cross_replica_sum(tf.gradients(loss, w)[0])
        velocity = 0.9 * slot.read_value() + gradient
        with tf.control_dependencies([slot.assign(velocity), w.assign_sub(0.1 * velocity)]):
            return tf.identity(loss)

    def look_up() -> Any:
        with v1.variable_scope(v1.get_variable_scope(), reuse=True):
            w = v1.get_variable("w", [programs.INPUTS, programs.OUTPUTS], use_resource=True)
        return tf.nn.embedding_lookup(w, [3], name="looked_up")

    graph = programs.graph(step, look_up)
    rewritten = tf_wu_shard.rewrite_graph_def(graph.graph_def)
    assert [v.name for v in rewritten.variables] == ["slot"]
    (note,) = [n for n in rewritten.report.notes if n.startswith("weight w ")]
    assert "used outside of the TPU program by looked_up" in note
    assert_equal(programs.train(graph, rewritten.graph_def), programs.train(graph, graph.graph_def))


def test_a_matrix_function_has_its_tensor_whole_between_shards() -> None:
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        shape, options = [programs.INPUTS, programs.OUTPUTS], {"use_resource": True}
        w = v1.get_variable("w", shape, initializer=v1.ones_initializer(), **options)
        slot = v1.get_variable("slot", shape, initializer=v1.zeros_initializer(), **options)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
        gradient = v1.tpu.cross_replica_sum(tf.gradients(loss, w)[0])
        velocity = 0.9 * slot.read_value() + gradient
        turned = tf.matmul(tf.matmul(velocity, velocity, transpose_b=True), velocity)
        with tf.control_dependencies([slot.assign(velocity), w.assign_sub(0.1 * turned)]):
            return tf.identity(loss)

    graph = programs.graph(step)
    rewritten = tf_wu_shard.rewrite_graph_def(graph.graph_def)
    assert [(v.name, v.whole) for v in rewritten.report.variables] == [("w", "on every replica")]
    assert [v.name for v in rewritten.variables] == ["w", "slot"]
    assert_equal(programs.train(graph, rewritten.graph_def), programs.train(graph, graph.graph_def))
