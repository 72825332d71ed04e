"""Which steps are none for rounds, what their callers may not do, and who is warned of momentum."""

from __future__ import annotations

import re
import types
from typing import Any

import pytest
from absl import logging

from tests.partial_sums.worker_steps import GROUP, REDUCED, STEP, worker_step
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.options import PartialSums
from tf_wu_shard.partial_sums.rounds import calls
from tf_wu_shard.partial_sums.rounds.carried import carried_sums
from tf_wu_shard.partial_sums.rounds.checks import (
    check,
    check_is_not_handed_on,
    check_nothing_waits,
    warn_of_momentum,
)
from tf_wu_shard.partial_sums.steps.sums import sums_of
from tf_wu_shard.step.step import Step

VARIABLES = {"w": (4,), "v": (4,), "m": (4,), "n": ()}

# A sum beside the gradient.
TOTAL = "t0 = Sqrt(x0) [4] @d0\n"
TOTAL += "total0 = CollectiveReduceV2(t0, two, key) {merge_op=Add final_op=Id} [4] @d0\n"

# An update by the gradient and another sum, which is one number.
BY_A_COUNT = (
    TOTAL.replace("[4]", "[]")
    + """
    mean0 = Mul(sum0, total0) [4] @d0
    put0 = AssignSubVariableOp(w0, mean0) @d0
    """
)


def step_of(text: str, **keywords: Any) -> Step:
    return worker_step(
        REDUCED + text, **{"variables": VARIABLES, "trainable": ("w", "v"), **keywords}
    )


def checked(text: str, counts: frozenset[str] = frozenset(), **keywords: Any) -> None:
    step = step_of(text, **keywords)
    check(step, sums_of(step), {*counts})


def test_a_plain_step_with_a_loss_and_a_momentum_may_be_summed_in_rounds() -> None:
    text = """
    put0 = AssignAddVariableOp(m0, sum0) @d0
    moved0 = ReadVariableOp(m0) [4] @d0 ^put0
    step0 = AssignSubVariableOp(w0, moved0) @d0
    """
    checked(TOTAL + text, outputs=["total0"])


def test_a_gradient_that_is_made_of_another_sum_is_of_another_round() -> None:
    text = (
        TOTAL.replace("x0", "g0")
        + """
    scaled0 = Mul(g0, total0) [4] @d0
    again0 = CollectiveReduceV2(scaled0, two, key) {merge_op=Add final_op=Id} [4] @d0
    put0 = AssignSubVariableOp(w0, again0) @d0
    """
    )
    with pytest.raises(WuShardError, match="the gradient of w is made of what replicas put tog"):
        checked(text)


def test_an_update_by_a_gradient_and_another_sum_is_refused() -> None:
    text = BY_A_COUNT
    with pytest.raises(WuShardError, match="the update of w takes another sum over the replicas"):
        checked(text)


def test_a_count_of_batches_may_enter_an_update_as_the_step_knows_it() -> None:
    text = BY_A_COUNT
    checked(text, frozenset({"total0"}))


NOT_ITS_GRADIENT = "v is updated with a sum over the replicas that is not seen to be its gradient"


def test_a_weight_that_is_updated_with_a_statistic_is_named() -> None:
    text = STEP + TOTAL.replace("[4]", "[]") + "put0 = AssignSubVariableOp(v0, total0) @d0\n"
    with pytest.raises(WuShardError, match=NOT_ITS_GRADIENT):
        checked(text)


def test_a_statistic_is_followed_through_the_variable_that_it_is_written_to() -> None:
    # Of one element: of as many as v has it would be taken for a gradient, and n for a momentum.
    text = (
        STEP
        + TOTAL.replace("[4]", "[]")
        + """
    put0 = AssignVariableOp(n0, total0) @d0
    read0 = ReadVariableOp(n0) [] @d0 ^put0
    half0 = Sqrt(read0) [] @d0
    """
    )
    checked(text, outputs=["half0"])
    with pytest.raises(WuShardError, match=NOT_ITS_GRADIENT):
        checked(text + "then0 = AssignSubVariableOp(v0, half0) @d0\n")


def test_a_statistic_may_be_written_to_what_is_not_trained() -> None:
    checked(STEP + TOTAL + "put0 = AssignVariableOp(m0, total0) @d0\n")


def test_what_is_reduced_otherwise_than_to_a_sum_waits_for_all() -> None:
    text = "most0 = CollectiveReduceV2(x0, two, key) {merge_op=Max final_op=Id} [4] @d0\n"
    said = (
        "of a sum over replicas, most0, it reduces by Max and Id, not to a sum; sum one value of"
        " each replica, and write it to no trainable variable"
    )
    with pytest.raises(WuShardError, match=re.escape(said)):
        check_nothing_waits(step_of(STEP + text))
    with pytest.raises(WuShardError, match="most0"):
        checked(STEP + text)


def test_what_is_gathered_waits_for_all_though_nobody_reads_it() -> None:
    text = STEP + "all0 = CollectiveGatherV2(x0, two, key) [8] @d0\n"
    with pytest.raises(WuShardError, match=re.escape("all0 (CollectiveGatherV2) waits for all")):
        check_nothing_waits(step_of(text))


def test_a_sum_of_what_workers_replicas_added_up_is_none_that_waits() -> None:
    text = (
        GROUP
        + """
    x# = Placeholder() [4] @d#
    own = AddN(x0, x1) [4] @d0
    total = CollectiveReduceV2(own, two, key) {merge_op=Add final_op=Id} [4] @d0
    """
    )
    check_nothing_waits(worker_step(text, copies=2, outputs=["total"]))
    with pytest.raises(WuShardError, match="of a sum over replicas, total, "):
        check_nothing_waits(
            worker_step(text + "put = AssignSubVariableOp(w0, total) @d0\n", copies=2)
        )


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of this process, in which the function `step` takes part."""
    found = [types.SimpleNamespace(tokens={"one"})]
    monkeypatch.setattr(calls, "begun_rounds", lambda: found)


STEPS = {"step": ("x", "round = EagerPyFunc(x) {token=one}", "round")}


@pytest.mark.usefixtures("begun")
def test_a_function_hands_no_sum_to_the_step_that_it_calls() -> None:
    text = (
        TOTAL
        + """
    half0 = Sqrt(total0) [4] @d0
    called0 = StatefulPartitionedCall(half0) {f=&step} [4] @d0
    """
    )
    step = worker_step(REDUCED + text, functions=STEPS, outputs=["sum0"])
    of_total, of_gradient = (
        next(one for one in carried_sums(step) if one[0].name == name)
        for name in ("total0", "sum0")
    )
    said = "total0, a sum over replicas, is handed to a step that is summed in rounds"
    with pytest.raises(WuShardError, match=said):
        check_is_not_handed_on(step.view, of_total)
    check_is_not_handed_on(step.view, of_gradient)


@pytest.mark.usefixtures("begun")
def test_it_may_hand_it_to_what_is_no_step_and_sum_what_the_step_returns() -> None:
    text = (
        GROUP
        + """
    x0 = Placeholder() [4] @d0
    called0 = StatefulPartitionedCall(x0) {f=&step} [4] @d0
    total0 = CollectiveReduceV2(called0, two, key) {merge_op=Add final_op=Id} [4] @d0
    said0 = StatefulPartitionedCall(total0) {f=&says} [4] @d0
    """
    )
    functions = {**STEPS, "says": ("x", "y = Print(x)", "y")}
    step = worker_step(text, functions=functions, outputs=["said0"])
    (carried,) = carried_sums(step)
    check_is_not_handed_on(step.view, carried)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged, each line with how often it may be at most."""
    lines: list[str] = []

    def log(level: int, text: str, count: int, *words: object) -> None:
        lines.append(f"{count}: {text % words}")

    monkeypatch.setattr(logging, "log_first_n", log)
    return lines


MOMENTUM = """
put0 = AssignAddVariableOp(m0, sum0) @d0
moved0 = ReadVariableOp(m0) [4] @d0 ^put0
step0 = AssignSubVariableOp(w0, moved0) @d0
"""


def test_who_keeps_a_momentum_is_warned_once_of_solo_rounds(logged: list[str]) -> None:
    step = step_of(MOMENTUM)
    warn_of_momentum(step.view, sums_of(step), PartialSums(mode="solo", max_staleness=3))
    (line,) = logged
    assert line.startswith("1: tf_wu_shard: PartialSums(mode='solo') sums most gradients late")
    assert "(m)" in line and "max_staleness (3)" in line


@pytest.mark.parametrize(("text", "mode"), [(MOMENTUM, "majority"), (STEP, "solo")])
def test_others_are_not_warned(logged: list[str], text: str, mode: Any) -> None:
    step = step_of(text)
    warn_of_momentum(step.view, sums_of(step), PartialSums(mode=mode))
    assert logged == []
