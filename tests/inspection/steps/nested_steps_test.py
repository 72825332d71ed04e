"""A step that was found says over how many replicas it sums, and which are nested in it."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tests.weight_update.analysis.steps import MOMENTUM, analysis_of
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.inspection.steps.nested_steps import FoundStep, steps_in

VIEW = view_of("x = Placeholder() [4]")
ANALYSIS = analysis_of(MOMENTUM)
PROGRAM = Cluster("cluster", 16, None)


def test_a_step_sums_over_the_replicas_of_its_program_or_those_that_it_was_traced_for() -> None:
    assert FoundStep(VIEW, ANALYSIS, PROGRAM).sums_over == 16
    assert FoundStep(VIEW, ANALYSIS, replicas=4).sums_over == 4
    assert FoundStep(VIEW, ANALYSIS).sums_over == 1


def test_only_of_a_step_of_one_device_are_gradients_taken_for_summed() -> None:
    assert FoundStep(VIEW, ANALYSIS).is_assumed
    assert not FoundStep(VIEW, ANALYSIS, replicas=4).is_assumed
    # A program of one replica is one all the same.
    assert not FoundStep(VIEW, ANALYSIS, Cluster("cluster", 1, None)).is_assumed


def test_a_function_without_branches_is_the_only_step() -> None:
    view = view_of(
        """
        x = Placeholder() [4]
        g = Square(x) [4]
        step = AssignSubVariableOp(w0, g)
        """,
        replicas=1,
        variables={"w": (4,)},
        controls=["step"],
    ).with_inputs(["x"], {})
    itself, nested = steps_in(view, {}, None, Question(replicas=2))
    assert nested == [] and itself.is_assumed
    assert [update.name for update in itself.analysis.updates] == ["w"]
