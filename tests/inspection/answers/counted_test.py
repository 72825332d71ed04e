"""What the bytes received leave out is said by every format."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest
import tensorflow as tf

from tests.inspection.made_answers import answer
from tests.model_files.exported import exported as exported_step
from tests.model_files.exported import save
from tf_wu_shard.inspection.answers.answer import FunctionAnswer
from tf_wu_shard.inspection.formats.json_text import as_json
from tf_wu_shard.inspection.formats.markdown import as_markdown
from tf_wu_shard.inspection.formats.page import as_html
from tf_wu_shard.inspection.formats.text import as_lines
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.topology import parse_topology


class Table(tf.Module):
    """A table of words and a step that trains the rows that a batch, of any size, looks up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.Variable(tf.zeros((500, 16)), name="table")

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.int32)])
    def train(self, words: tf.Tensor) -> None:
        """One step."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(self.table, words) ** 2)
        gradient = tape.gradient(loss, self.table)
        self.table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return save(Table(), tmp_path_factory.mktemp("table"), {})


def answered(folder: pathlib.Path, question: Question) -> FunctionAnswer:
    (found,) = (f for f in inspect(read_model(folder), question).functions if f.trains)
    return found


def test_sparse_gradients_are_not_counted_where_they_are_sparse(exported: pathlib.Path) -> None:
    assert answered(exported, Question()).sparse == 1


def test_on_tpus_the_gradient_is_dense_and_counted(exported: pathlib.Path) -> None:
    found = answered(exported, Question(topology=parse_topology("v5e:2x2")))
    assert found.report is not None and found.report.wire_bytes.unsharded
    assert not found.sparse


@pytest.mark.parametrize(("count", "said"), [(1, "1 sparse gradient:"), (3, "3 sparse gradients:")])
def test_every_format_says_that_sparse_gradients_are_not_counted(count: int, said: str) -> None:
    inspection = answer()
    (function,) = inspection.functions
    inspection = dataclasses.replace(
        inspection, functions=(dataclasses.replace(function, sparse=count),)
    )
    for show in (as_lines, as_html, as_markdown):
        assert f"does not count {said}" in show(inspection)
    assert any(said in line for line in json.loads(as_json(inspection))["plan"][0]["counted"])
    # The number itself says so too, where it has no sentence beside it.
    assert "received in a step | at least 8.19 kB" in as_markdown(inspection)


@pytest.mark.parametrize(("optimizer", "others"), [("adafactor", 4), ("adam", 0)])
def test_what_is_kept_in_another_shape_than_the_weights_is_not_counted(
    optimizer: str, others: int
) -> None:
    # Of each of two kernels, Adafactor averages the rows and the columns.
    inspection = inspect(read_model(exported_step(optimizer)), Question())
    (found,) = (f for f in inspection.functions if f.report is not None)
    assert found.others == others
    assert ("Not counted: 4 other variables" in as_lines(inspection)) is bool(others)
