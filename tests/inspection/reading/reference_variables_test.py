"""A graph of TensorFlow 1 whose weights are reference variables is said to train all the same."""

from __future__ import annotations

import pathlib

import tensorflow as tf

from tf_wu_shard.inspection.answers.answer import Inspection
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model

v1 = tf.compat.v1


def inspected(folder: pathlib.Path, *, by_reference: tuple[bool, ...]) -> Inspection:
    """A checkpoint's graph with a chain of weights, each a reference variable or a resource."""
    with tf.Graph().as_default():
        found = v1.placeholder(tf.float32, (8, 64))
        for number, reference in enumerate(by_reference):
            weight = v1.get_variable(f"w{number}", (64, 64), use_resource=not reference)
            found = tf.matmul(found, weight)
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(found**2))
        v1.train.Saver().export_meta_graph(str(folder / "model.meta"))
    return inspect(read_model(folder / "model.meta"), Question())


def test_weights_that_are_reference_variables_are_left_alone(tmp_path: pathlib.Path) -> None:
    (found,) = inspected(tmp_path, by_reference=(True, True)).functions
    assert found.trains and found.writes == 2
    assert "w0 and 1 more are reference variables" in found.verdict


def test_one_beside_resource_variables_is_noted(tmp_path: pathlib.Path) -> None:
    (found,) = inspected(tmp_path, by_reference=(True, False)).functions
    assert found.report is not None
    assert [v.name for v in found.report.variables] == ["w1"]
    assert any("w0 is a reference variable" in note for note in found.report.notes)


def test_resource_variables_are_not_taken_for_such(tmp_path: pathlib.Path) -> None:
    (found,) = inspected(tmp_path, by_reference=(False, False)).functions
    assert found.report is not None and not found.report.notes
