"""A function that would train on batches which only stand in is refused, and says what to do."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums import stand_ins
from tf_wu_shard.partial_sums.lateness import LateTensor
from tf_wu_shard.tensorflow_private import creating_traces, marked_batches
from tf_wu_shard.tensorflow_private.marked_batches import Mark

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function `evaluate`, which takes batches that may be stand-ins."""

    @tf.function(autograph=False)
    def evaluate(x: tf.Tensor) -> tf.Tensor:
        return x + 1.0

    traced = evaluate.get_concrete_function(tf.TensorSpec([2])).graph
    marks = {id(traced): [Mark("wu_shard_late", ("x:0",))]}
    monkeypatch.setattr(marked_batches, "marks_of", lambda graph: marks.get(id(graph), []))
    return traced


def test_a_function_that_takes_stand_ins_for_real_batches_is_named(graph: Any) -> None:
    with pytest.raises(WuShardError) as raised:
        stand_ins.check_stand_ins(graph)
    said = str(raised.value)
    assert "evaluate" in said.split(" gets batches from a deadline_dataset")[0]
    assert "with the flag 'partial_gradient_sums' on" in said
    assert "give an evaluation the dataset itself" in said


def test_a_function_without_such_batches_is_not_looked_at(
    graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creating_traces, "makes_variables", lambda graph: pytest.fail("looked at"))
    stand_ins.check_stand_ins(tf.Graph())


def test_the_first_trace_of_a_function_that_makes_variables_does_not_count(
    graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creating_traces, "makes_variables", lambda one: one is graph)
    stand_ins.check_stand_ins(graph)


def test_what_is_exported_trains_on_nothing(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "is_exporting", lambda: True)
    stand_ins.check_stand_ins(graph)


def test_strategies_take_late_tensors_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[marked_batches.Said] = []
    monkeypatch.setattr(marked_batches, "install", installed.append)
    stand_ins.install()
    (said,) = installed
    value, late = tf.ones([2]), tf.constant([0, 3])
    assert said.kind is LateTensor
    tensor, heard = said.apart(LateTensor(value, late))
    assert tensor is value and heard is late
    error = said.no_graph()
    assert isinstance(error, WuShardError)
    assert "run it in a tf.function, or compile the model without run_eagerly" in str(error)
