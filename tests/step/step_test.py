"""A step tells what its replicas sum, whose gradient that is, and why another sum is none."""

from __future__ import annotations

import tensorflow as tf

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import REDUCED, STEP
from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.step import Step

# A loss beside the gradient, and a number of the gradient's size that goes nowhere.
OTHERS = """
loss# = L2Loss(x#) [] @d#
total# = CollectiveReduceV2(loss#, size, key) {merge_op=Add final_op=Id} [] @d#
idle# = CollectiveReduceV2(x#, size, key) {merge_op=Add final_op=Id} [4] @d#
"""


def step(text: str) -> Step:
    """A step of a weight of 4 elements on two replicas."""
    view = view_of(REDUCED + text, variables={"w": (4,)}, outputs=())
    return Step(None, Captured(view, {"w": tf.Variable(tf.zeros((4,)))}), DIALECT)


def test_every_sum_of_all_replicas_is_told() -> None:
    found = step(STEP.format("sum#") + OTHERS)
    results = {reduction.results for reduction in found.reductions}
    assert results == {
        (Value("sum0"), Value("sum1")),
        (Value("total0"), Value("total1")),
        (Value("idle0"), Value("idle1")),
    }
    assert found.replicas == DIALECT.replicas and found.refused == ()


def test_a_sum_is_of_the_weight_that_it_is_written_to() -> None:
    found = step(STEP.format("sum#") + OTHERS)
    weights = {r.results[0].op: found.weight_of(r) for r in found.reductions}
    assert weights == {"sum0": "w", "total0": "", "idle0": ""}


def test_a_weight_that_is_no_live_variables_is_none() -> None:
    found = step(STEP.format("sum#"))
    (reduction,) = found.reductions
    elsewhere = Step(None, Captured(found.view, {}), DIALECT)
    assert found.weight_of(reduction) == "w" and elsewhere.weight_of(reduction) == ""


def test_a_sum_that_no_pass_can_work_with_has_its_reason() -> None:
    largest = "most# = CollectiveReduceV2(x#, size, key) {merge_op=Max final_op=Id} [4] @d#\n"
    found = step(largest + STEP.format("most#"))
    assert [r.results[0].op for r in found.reductions] == ["sum0"]
    assert [refusal.where for refusal in found.refused] == ["most0", "most1"]
