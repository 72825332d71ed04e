"""What is said of a model in files with another optimizer is what is estimated for its weights."""

from __future__ import annotations

import dataclasses
import pathlib

import keras
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.model_files.exported import exported, save
from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.estimation.optimizer_step import optimizer_of
from tf_wu_shard.estimation.saved_weights import inspect_with_optimizer
from tf_wu_shard.inspection.answers.answer import Inspection
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.model_files.types import Model, ModelVariable
from tf_wu_shard.topology import parse_topology

SHAPES = {
    "sequential/hidden/kernel": (16, 64),
    "sequential/hidden/bias": (64,),
    "sequential/out/kernel": (64, 10),
    "sequential/out/bias": (10,),
}
FLOAT, INTEGER = 1, 3


def asked(model: Model, name: str, question: Question | None = None) -> Inspection:
    return inspect_with_optimizer(model, optimizer_of(name), question or Question())


def model_of(**variables: ModelVariable) -> Model:
    """A model of variables only."""
    graph_def = tf.compat.v1.GraphDef()
    return Model("GraphDef", graph_def, {}, (), variables, {}, (), (), ())


@pytest.mark.parametrize("name", ["adam", "Lamb", "SGD", "schedule_free_adam_w", "muon"])
@pytest.mark.parametrize("topology", [None, "v5e:2x2"])
def test_weights_of_a_predictor_take_what_is_estimated(name: str, topology: str | None) -> None:
    slice_ = None if topology is None else parse_topology(topology)
    optimizer, question = optimizer_of(name), Question(replicas=4, topology=slice_)
    found = inspect_with_optimizer(read_model(exported(None)), optimizer, question)
    assert not found.notes and "what if" in found.verdict
    (function,) = found.functions
    (row,) = tf_wu_shard.estimate(SHAPES, optimizer, 4, topology=topology).rows
    assert function.report is not None
    assert dataclasses.replace(function.report, function="estimate") == row.report
    (memory,) = (m for m in function.memory if m.replicas == 4)
    if topology is None:
        assert (memory.weights, memory.slots) == (row.weights, row.slots)
    assert [m.replicas for m in function.memory] == [2**i for i in range(1, 11)]


def test_a_model_with_a_train_step_is_asked_of_its_weights_only() -> None:
    (trained,) = asked(read_model(exported("adam")), "sgd").functions
    assert trained.assumed == 4 and not any(update.slots for update in trained.updates)
    assert {update.optimizer for update in trained.updates} == {"SGD"}


def test_a_table_that_is_only_looked_up_has_a_sparse_gradient(tmp_path: pathlib.Path) -> None:
    module = tf.Module()
    module.model = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Embedding(300, 8, name="table")], name="words"
    )
    module.call = tf.function(
        module.model, input_signature=[tf.TensorSpec((2, 4), tf.float32, name="x")]
    )
    model = read_model(save(module, tmp_path, {"serving_default": module.call}))
    (function,) = asked(model, "adam").functions
    assert function.report is not None
    assert any("taken for sparse" in note for note in function.report.notes)
    (dense,) = asked(model, "adam", Question(topology=parse_topology("v5e:2x2"))).functions
    assert dense.report is not None and not dense.report.notes


def test_names_out_of_a_file_may_be_any() -> None:
    names = ("_w/\x1b[2J", "-", "a//b", "\u202e", "é {}")
    variables = {name: ModelVariable(name, (64, 64), FLOAT, True) for name in names}
    (function,) = asked(model_of(**variables), "lion").functions
    assert function.report is not None
    assert {v.name for v in function.report.variables} == set(names)


def test_what_the_files_do_not_tell_is_said() -> None:
    known = ModelVariable("known", (64, 64), FLOAT, True)
    found = asked(model_of(known=known, open=ModelVariable("open", None, FLOAT, True)), "adam")
    assert found.notes == ("left out, as shape or type are not known: open",)
    assert found.functions[0].assumed == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"w": ModelVariable("w", (2,), FLOAT, None)}, "does not say which variables are trained"),
        ({}, "no trainable variable"),
        ({"w": ModelVariable("w", (2,), FLOAT, False)}, "no trainable variable"),
        ({"w": ModelVariable("w", (2,), INTEGER, True)}, "no trainable variable"),
        ({"w": ModelVariable("w", None, FLOAT, True)}, "the shape of no trainable variable"),
    ],
)
def test_without_weights_there_is_no_answer(variables: dict[str, ModelVariable], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        asked(model_of(**variables), "adam")


def test_reference_variables_are_no_weights_that_it_could_share(tmp_path: pathlib.Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        weight = v1.get_variable("w", (8, 64), use_resource=False)
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(weight))
        v1.train.Saver().export_meta_graph(str(tmp_path / "model.meta"))
    with pytest.raises(ModelFileError, match="w is a reference variable of TensorFlow 1"):
        asked(read_model(tmp_path / "model.meta"), "adam")
