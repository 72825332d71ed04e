from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.eager import backprop
from tensorflow.python.eager.polymorphic_function import concrete_function

from tf_wu_shard.tensorflow_private import step_stop


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets TensorFlow go on unwatched after each test."""
    for owner, name in (
        (concrete_function.ConcreteFunction, "_call_flat"),
        (backprop.GradientTape, "gradient"),
        (session.BaseSession, "run"),
        *(
            (variable, update)
            for variable in step_stop.VARIABLES
            for update in step_stop.UPDATES & vars(variable).keys()
        ),
        (tf.compat.v1.train.Optimizer, "apply_gradients"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))


def test_calls_are_told_from_calls_in_a_trace() -> None:
    seen: list[str] = []
    step_stop.before_calls(lambda function: seen.append(function.graph.name))
    inner = tf.function(lambda x: x + 1.0, autograph=False)

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x) * 2.0

    assert float(outer(tf.constant(1.0))) == 4.0
    assert seen == ["outer"]
    assert float(outer.get_concrete_function(tf.TensorSpec(()))(tf.constant(2.0))) == 6.0
    assert seen == ["outer", "outer"]


def test_eager_gradients_of_weights_are_told_from_others() -> None:
    seen: list[int] = []
    step_stop.before_eager_gradients(lambda: seen.append(1))
    weight = tf.Variable(3.0)
    x = tf.constant(2.0)

    def gradient(source: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = weight * x
        return tape.gradient(y, source)

    gradient(x)
    tf.function(gradient)(weight)
    assert not seen
    gradient({"w": [weight]})
    assert seen == [1]


def test_eager_updates_of_weights_are_told_from_others() -> None:
    seen: list[int] = []
    step_stop.before_eager_updates(lambda: seen.append(1))
    weight, count = tf.Variable([3.0]), tf.Variable(0, trainable=False)
    weight.assign([4.0])
    count.assign_add(1)
    tf.function(lambda: weight.assign_sub([1.0]))()
    assert not seen
    weight.assign_sub([1.0])
    weight.scatter_add(tf.IndexedSlices([1.0], [0]))
    assert len(seen) == 2 and weight.numpy() == [3.0]
    tf.compat.v1.train.GradientDescentOptimizer(1.0).apply_gradients([(tf.ones((1,)), weight)])
    assert len(seen) > 2


def test_a_session_tells_what_it_would_run() -> None:
    seen: list[set[str]] = []
    step_stop.before_session_runs(seen.append)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, ())
        with tf.control_dependencies([tf.sqrt(x)]):
            y = tf.negative(x, name="y")
        tf.exp(x)
        with tf.compat.v1.Session(graph=graph) as running:
            running.run({"a": y, "b": "y:0"}, {x: 1.0})
            running.run(y.op, {x: 1.0})
    assert seen == [{"Placeholder", "Sqrt", "Neg"}] * 2
