"""What is said of a step: what it writes, what trains, which bytes count and which do not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.inspection.answers.answer import FunctionAnswer
from tf_wu_shard.inspection.answers.describing import (
    REPLICAS,
    described,
    written_variables,
)
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.inspection.steps.nested_steps import steps_in
from tf_wu_shard.model_files.types import Model

STEP = """
x = Placeholder() [64,64]
g = Square(x) [64,64]
put = AssignAddVariableOp(m0, g)
moved = ReadVariableOp(m0) [64,64] ^put
step = AssignSubVariableOp(w0, moved)
"""
SHAPES = {"w": (64, 64), "m": (64, 64)}


def answer(text: str = STEP, replicas: int | None = None, **keywords: Any) -> FunctionAnswer:
    """What is said of a step of one device."""
    keywords = {"variables": SHAPES, **keywords}
    view = view_of(text, replicas=1, **keywords).with_inputs(["x"], {})
    question = Question(replicas=replicas)
    step, _ = steps_in(view, {}, None, question)
    model = Model("GraphDef", view.graph_def, {}, (), {}, {}, (), (), ())
    return described("train", model, question, step)


def test_a_step_of_one_device_is_planned_for_eight_replicas_or_those_that_were_asked_for() -> None:
    for replicas, count in ((None, 8), (2, 2)):
        found = answer(replicas=replicas)
        assert found.trains and found.verdict.startswith("trains on one device")
        assert (found.assumed, found.reductions, found.groups) == (1, 0, "")
        assert found.report is not None and found.report.num_replicas == count
        (update,) = found.updates
        assert (update.variable, update.optimizer) == ("w", "momentum-like")
        assert (update.slots, update.bytes) == (("m",), 4 * 64 * 64)


def test_memory_is_told_from_two_replicas_to_a_thousand_and_shrinks() -> None:
    found = answer()
    assert [row.replicas for row in found.memory] == list(REPLICAS) == [2**n for n in range(1, 11)]
    slots = [row.slots.sharded for row in found.memory]
    assert slots == sorted(slots, reverse=True) and slots[0] == 4 * 64 * 64 // 2
    assert {row.slots.unsharded for row in found.memory} == {4 * 64 * 64}


def test_other_variables_of_several_elements_are_counted_and_single_numbers_are_not() -> None:
    text = STEP + "far = AssignVariableOp(mean0, x)\nnear = AssignVariableOp(count0, one)\n"
    text = "one = Const() {value=1} []\n" + text
    shapes = {**SHAPES, "mean": (64, 64), "count": ()}
    assert answer(text, variables=shapes).others == 1


def test_a_step_that_writes_no_weight_trains_nothing() -> None:
    found = answer(trainable=())
    assert not found.trains and found.report is None and found.memory == ()
    assert found.verdict == "2 variable writes, none of a weight: nothing to shard"


def test_where_no_shape_is_known_the_answer_says_what_writes_them() -> None:
    refs = {"w": VariableRef("w", 0, 1, None, 1, True, "", False)}
    text = "x = Placeholder() [?]\nstep = AssignSubVariableOp(w, x)"
    found = answer(text, variables={}, refs=refs)
    assert "the file tells no variable's shape" in found.verdict
    assert "add_shapes" in found.verdict


@pytest.mark.parametrize("write", ["AssignVariableOp", "ResourceScatterAdd"])
def test_every_kind_of_write_counts_with_whether_its_variable_is_trained(write: str) -> None:
    view = view_of(
        f"x = Placeholder() [4]\na = {write}(w0, x)\nb = {write}(m0, x)\nc = ReadVariableOp(v0)",
        replicas=1,
        variables=dict.fromkeys(("w", "m", "v"), (4,)),
    )
    assert written_variables(view) == {"w": True, "m": False}
