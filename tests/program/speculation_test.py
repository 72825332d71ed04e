"""What may run although its branch is not taken, and what may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.row_lists import RowLists
from tf_wu_shard.program.speculation import RunsInVainError, check_ops, unproved
from tf_wu_shard.step.capture import capture

FLOATS = tf.TensorSpec((3, 4))
WHOLE = tf.TensorSpec((), tf.int32)
ANY = tf.TensorSpec((None, 4))

Function = Callable[[tf.Tensor], Any]


def check(function: Function, spec: tf.TensorSpec) -> None:
    graph = tf.function(function).get_concrete_function(spec).graph
    nodes = graph.as_graph_def().node
    check_ops(nodes, RowLists(nodes, (), TracedGraph(graph).static_shape))
    names = [op.name for op in graph.get_operations() if op.type != "Placeholder"]
    for refusal in unproved(capture(graph).view, names, ()).values():
        raise RunsInVainError(refusal)


@pytest.mark.parametrize(
    ("function", "spec"),
    [
        (lambda x: x * 2.0 + tf.reduce_sum(tf.sqrt(x)), FLOATS),
        (lambda x: tf.reshape(x, (4, 3)) / tf.fill((4, 3), 0.0), FLOATS),
        (lambda x: tf.stack([x, x])[1], FLOATS),
        (lambda n: n // 3 + n**2, WHOLE),
    ],
)
def test_arithmetic_may_run_in_vain(function: Function, spec: tf.TensorSpec) -> None:
    check(function, spec)


@pytest.mark.parametrize(
    ("function", "spec", "reason"),
    [
        (lambda x: tf.cumsum(x), FLOATS, "Cumsum is not to run where its branch is not taken"),
        (lambda x: tf.random.uniform((3, 4)) * x, FLOATS, "RandomUniform is not to run"),
        (lambda x: tf.debugging.check_numerics(x, ""), FLOATS, "CheckNumerics is not to run"),
        (lambda n: 3 // n, WHOLE, "FloorDiv of whole numbers may fail"),
        (lambda n: n % 0, WHOLE, "FloorMod of whole numbers may fail"),
        (lambda n: 2**n, WHOLE, "Pow of whole numbers may fail"),
        (lambda x: x + tf.ones((1, 4)), ANY, "the shape of what AddV2 yields is not known"),
        (lambda n: tf.ones(4)[n], WHOLE, "StridedSlice is not to run"),
    ],
)
def test_what_may_fail_or_cost_much_may_not(
    function: Function, spec: tf.TensorSpec, reason: str
) -> None:
    with pytest.raises(RunsInVainError, match=reason):
        check(function, spec)
