"""What batches say is taken out of them where a strategy runs a step, and noted in its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, tpu_strategy
from tensorflow.python.distribute.values import PerReplica

from tf_wu_shard import graph_pass
from tf_wu_shard.tensorflow_private import marked_batches
from tf_wu_shard.tensorflow_private.marked_batches import Mark, Said, forget, marks_of
from tf_wu_shard.tensorflow_private.wrapping import unwrap


class Marked(tf.experimental.ExtensionType):
    """What stands in the place of a batch's first tensor."""

    value: tf.Tensor
    says: tf.Tensor


class NoGraphError(Exception):
    """A replica's program is not being traced."""


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch, strategy_of: Callable[[int], Any]) -> Any:
    """Two replicas, whose batches may be marked."""
    two = strategy_of(2)
    # What a step does with what is noted is not the question here.
    monkeypatch.setattr(graph_pass, "check_stand_ins", lambda graph: None)
    wrapped = [(distribute_lib.StrategyBase, "run"), (distribute_lib.StrategyBase, "reduce")]
    wrapped += [(tpu_strategy, "validate_run_function")]
    wrapped += [
        (getattr(tpu_strategy, name), "run")
        for name in ("TPUStrategyV2", "TPUStrategy", "TPUStrategyV1")
    ]
    for owner, name in wrapped:
        monkeypatch.setattr(owner, name, getattr(owner, name))
        unwrap(owner, name)
    marked_batches.install(Said(Marked, lambda one: (one.value, one.says), NoGraphError))
    return two


def marked(number: float, says: int) -> Marked:
    return Marked(tf.fill([2], number), tf.fill([2], says))


def traced(step: Callable[..., Any], *arguments: Any) -> Any:
    return tf.function(step, autograph=False).get_concrete_function(*arguments)


def double(batch: tf.Tensor, *more: Any, **named: Any) -> tf.Tensor:
    assert not isinstance(batch, Marked)
    return batch * 2.0


def per_replica() -> PerReplica:
    return PerReplica([marked(1.0, 3), marked(5.0, 4)])


def test_each_replica_gets_its_tensors_alone_and_what_they_say_is_noted(strategy: Any) -> None:
    step = traced(lambda: strategy.run(double, (per_replica(),)))
    found = strategy.experimental_local_results(step())
    assert [one.numpy().tolist() for one in found] == [[2.0, 2.0], [10.0, 10.0]]
    marks = marks_of(step.graph)
    said = [step.graph.get_operation_by_name(mark.op).inputs[0] for mark in marks]
    assert [tf.get_static_value(one).tolist() for one in said] == [[3, 3], [4, 4]]
    for mark in marks:
        op = step.graph.get_operation_by_name(mark.op)
        assert op.outputs[0].dtype == tf.int32 and "wu_shard_late" in mark.op
        (given,) = mark.tensors
        assert step.graph.get_tensor_by_name(given).dtype == tf.float32


def test_all_that_a_replica_is_given_is_named_but_for_scalars(strategy: Any) -> None:
    def step(batch: Any, labels: tf.Tensor, rate: tf.Tensor) -> Any:
        return strategy.run(double, (batch, {"labels": labels}), {"rate": rate, "more": labels})

    batch = tf.TensorSpec([2])
    spec: Any = Marked.Spec(batch, tf.TensorSpec([2], tf.int32))
    function = traced(step, spec, tf.TensorSpec([2]), tf.TensorSpec([]))
    for mark in marks_of(function.graph):
        shapes = [function.graph.get_tensor_by_name(one).shape.rank for one in mark.tensors]
        assert shapes == [1, 1, 1]


def test_what_batches_say_is_noted_in_the_function_that_runs_them(strategy: Any) -> None:
    step = tf.function(lambda batch: strategy.run(double, (batch,)), autograph=False)
    outer = traced(lambda: step(marked(1.0, 3)))
    assert marks_of(outer.graph) == []
    (inner,) = step._list_all_concrete_functions()
    assert len(marks_of(inner.graph)) == 2


def test_a_batch_that_says_nothing_goes_through_as_it_is(strategy: Any) -> None:
    seen: list[Any] = []

    def replica(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    batch = tf.ones([2])
    strategy.run(replica, (batch,), {"rate": 1})
    assert len(seen) == 2
    assert all(args[0] is batch and kwargs == {"rate": 1} for args, kwargs in seen)
    step = traced(lambda: strategy.run(double, (batch,)))
    assert marks_of(step.graph) == []


def test_outside_of_a_function_nothing_can_be_noted(strategy: Any) -> None:
    with pytest.raises(NoGraphError):
        strategy.run(double, (per_replica(),))


def test_who_has_seen_to_it_has_it_forgotten(strategy: Any) -> None:
    step = traced(lambda: strategy.run(double, (marked(1.0, 3),)))
    assert marks_of(step.graph) != []
    forget(step.graph)
    forget(step.graph)
    assert marks_of(step.graph) == []


def test_marks_are_gone_with_their_graph() -> None:
    graph = tf.Graph()
    marked_batches._marks[graph] = [Mark("op", ())]
    before = len(marked_batches._marks)
    del graph
    assert len(marked_batches._marks) == before - 1


def test_what_is_reduced_is_the_tensor_alone(strategy: Any) -> None:
    assert strategy.reduce("SUM", per_replica(), axis=None).numpy().tolist() == [6.0, 6.0]
    nested = {"batch": per_replica(), "more": PerReplica([tf.constant(1.0), tf.constant(2.0)])}
    found = strategy.reduce("MEAN", nested, axis=None)
    assert (found["batch"].numpy().tolist(), float(found["more"])) == ([3.0, 3.0], 1.5)


def test_a_replicas_program_may_branch_as_python_does(strategy: Any) -> None:
    def replica(batch: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(batch) > 4.0:
            batch = -batch
        return batch

    # As AutoGraph converts it where it converts the step.
    step = tf.function(lambda: strategy.run(replica, (per_replica(),)))
    found = strategy.experimental_local_results(step())
    assert [one.numpy().tolist() for one in found] == [[1.0, 1.0], [-5.0, -5.0]]


def test_a_program_that_is_a_function_is_not_traced_anew_for_each_step(strategy: Any) -> None:
    traces: list[int] = []

    @tf.function(autograph=False)
    def replica(batch: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return batch + 1.0

    # Each of these is a trace of its own.
    for _ in range(3):
        step = traced(lambda: strategy.run(replica, (per_replica(),)))
        found = strategy.experimental_local_results(step())
        assert [one.numpy().tolist() for one in found] == [[2.0, 2.0], [6.0, 6.0]]
    # Once for each replica.
    assert len(traces) == 2


def test_a_function_of_ours_is_known_by_the_one_that_it_stands_for(strategy: Any) -> None:
    @tf.function(autograph=False)
    def replica(batch: tf.Tensor) -> tf.Tensor:
        return batch

    said = Said(Marked, lambda one: (one.value, one.says), NoGraphError)
    ours = marked_batches._noting(replica, said, lifted=False)
    # TensorFlow asks that of a TPUStrategy's programs outside of a function.
    tpu_strategy.validate_run_function(ours)
    with pytest.raises(NotImplementedError):
        tpu_strategy.validate_run_function(lambda batch: batch)
