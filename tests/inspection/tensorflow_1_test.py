"""TPU programs in graphs of TensorFlow 1: what is said of a file is what the rewrite does."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import text_format

import tf_wu_shard
from tests.graph_def import programs
from tests.graph_def.programs import OPTIMIZERS, optimizer_step
from tests.inspection.inspect_test import training
from tf_wu_shard.inspection.answers.answer import FunctionAnswer
from tf_wu_shard.inspection.answers.describing import SHAPELESS
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.report.report import Report

Written = Callable[[programs.Graph, pathlib.Path], pathlib.Path]


def binary(made: programs.Graph, folder: pathlib.Path) -> pathlib.Path:
    path = folder / "graph.pb"
    path.write_bytes(made.graph_def.SerializeToString())
    return path


def text(made: programs.Graph, folder: pathlib.Path) -> pathlib.Path:
    path = folder / "graph.pbtxt"
    path.write_text(text_format.MessageToString(made.graph_def))
    return path


def meta(made: programs.Graph, folder: pathlib.Path) -> pathlib.Path:
    path = folder / "model.meta"
    path.write_bytes(made.meta_graph.SerializeToString())
    return path


FORMS = [binary, text, meta]


def answer(made: programs.Graph, write: Written, folder: pathlib.Path) -> FunctionAnswer:
    """What is said of a graph in a file."""
    return training(inspect(read_model(write(made, folder)), Question()))


def _planned(report: Report | None) -> tuple[Any, ...]:
    """What is sharded and how, what is not and why, and what is said to be kept and moved."""
    assert report is not None
    return (
        {v.name: (v.layout, set(v.slots)) for v in report.variables},
        {left.name: left.reason for left in report.left_alone},
        (report.num_replicas, report.slot_bytes_per_replica, report.weight_bytes_per_replica),
    )


@pytest.mark.parametrize("write", FORMS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_rewrite_does_what_is_said(
    optimizer: str, write: Written, tmp_path: pathlib.Path
) -> None:
    made = programs.graph(optimizer_step(OPTIMIZERS[optimizer]))
    found = answer(made, write, tmp_path)
    assert (found.reductions, found.groups) == (2, "all 4 replicas")
    report = tf_wu_shard.rewrite_graph_def(made.graph_def).report
    assert _planned(found.report) == _planned(report)
    assert report.variables


def open_coded(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """A weight with a momentum, both written by plain ops."""
    shape = [x.shape[1], y.shape[1]]
    w = tf.compat.v1.get_variable("w", shape, use_resource=True)
    m = tf.compat.v1.get_variable("m", shape, use_resource=True, trainable=False)
    loss = tf.reduce_sum(tf.square(tf.matmul(x, w) - y))
    gradient = tf.compat.v1.tpu.cross_replica_sum(tf.gradients(loss, w)[0])
    moved = m.assign_add(0.5 * (gradient - m), read_value=False)
    with tf.control_dependencies([moved]):
        written = w.assign_sub(0.1 * m.read_value(), read_value=False)
    with tf.control_dependencies([written]):
        return tf.identity(loss)


def summed_by_hand(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """A weight that two of the four replicas each sum for themselves."""
    w = tf.compat.v1.get_variable("w", [x.shape[1], y.shape[1]], use_resource=True)
    loss = tf.reduce_sum(tf.square(tf.matmul(x, w) - y))
    gradient = tf.raw_ops.CrossReplicaSum(
        input=tf.gradients(loss, w)[0], group_assignment=[[0, 1], [2, 3]]
    )
    with tf.control_dependencies([w.assign_sub(0.1 * gradient, read_value=False)]):
        return tf.identity(loss)


def with_shapes(made: programs.Graph) -> programs.Graph:
    """The same graph, written with shapes."""
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(made.graph_def, name="")
    return dataclasses.replace(made, graph_def=imported.as_graph_def(add_shapes=True))


@pytest.mark.parametrize("write", FORMS)
@pytest.mark.parametrize(("step", "sharded"), [(open_coded, {"w"}), (summed_by_hand, set())])
def test_so_it_does_with_steps_written_by_hand(
    step: programs.Step, sharded: set[str], write: Written, tmp_path: pathlib.Path
) -> None:
    made = with_shapes(programs.graph(step))
    found = answer(made, write, tmp_path)
    report = tf_wu_shard.rewrite_graph_def(made.graph_def).report
    assert found.report is not None
    assert {v.name for v in found.report.variables} == {v.name for v in report.variables} == sharded


def test_a_file_without_shapes_has_them_by_its_variables(tmp_path: pathlib.Path) -> None:
    made = programs.graph(open_coded)
    found = answer(made, binary, tmp_path)
    assert _planned(found.report) == _planned(answer(with_shapes(made), binary, tmp_path).report)
    assert found.report is not None and SHAPELESS not in found.report.notes


def with_a_rate_from_a_table(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """A weight whose rate has a shape that follows from no variable's."""
    w = tf.compat.v1.get_variable("w", [x.shape[1], y.shape[1]], use_resource=True)
    loss = tf.reduce_sum(tf.square(tf.matmul(x, w) - y))
    gradient = tf.compat.v1.tpu.cross_replica_sum(tf.gradients(loss, w)[0])
    rate = tf.gather([0.1, 0.2], 1)
    with tf.control_dependencies([w.assign_sub(rate * gradient, read_value=False)]):
        return tf.identity(loss)


def test_where_a_shape_is_wanted_the_answer_says_so(tmp_path: pathlib.Path) -> None:
    found = answer(programs.graph(with_a_rate_from_a_table), binary, tmp_path)
    assert found.report is not None and not found.report.variables
    assert SHAPELESS in found.report.notes


def test_one_replica_is_told_by_both(tmp_path: pathlib.Path) -> None:
    made = programs.graph(optimizer_step(OPTIMIZERS["adam"]), replicas=1)
    report = answer(made, binary, tmp_path).report
    assert not tf_wu_shard.rewrite_graph_def(made.graph_def).report.variables
    assert report is not None and not report.variables
    assert "there is one replica" in {left.name: left.reason for left in report.left_alone}["w"]
