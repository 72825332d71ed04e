"""Loops of steps, and steps that make their slots, train in shards as they do unsharded.

A few of them run with the other ways to train, in `training_scenarios_test`.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.equivalence.loop_scenarios import BUILT, LAZY, SCENARIOS
from tests.equivalence.own_process import answer_of

# Slots that the first step makes need a reduction without collectives in one process.
NAMES = {
    "tpu": (*BUILT, *LAZY),
    "mirrored": tuple(BUILT),
    "collective": tuple(BUILT),
    "one_device": tuple(LAZY),
}

# Kernels in shards after each scenario and slots of theirs; on TPUs the kernels are, too.
KERNELS_AND_SLOTS = {
    **dict.fromkeys(SCENARIOS, (2, 4)),
    "data_lazy": (2, 2),
    "while_loop_tf_keras": (2, 2),
    "restored": (4, 8),
    "two_nets": (4, 8),
    "range_plain": (2, 0),
}


# Before the second step is traced, another function captures the slots: that which reads them, or
# the loop around the step that TensorFlow makes them in.
CAPTURED = {("one_device", "read_between"), ("one_device", "orbit_lazy")}


@functools.cache
def found(ground: str, *names: str) -> dict[str, Any]:
    """What came of scenarios, all run by one process."""
    results: dict[str, Any] = answer_of("scenarios_run", f"loop_scenarios@{ground}", *names)
    return results


def check(ground: str, name: str, *names: str) -> None:
    """Nothing of a scenario differs by a bit, and all matrices are sharded."""
    outcome = found(ground, *names)[name]
    assert outcome["apart"] == []
    kernels, slots = KERNELS_AND_SLOTS[name]
    expected = slots + (kernels if ground == "tpu" else 0)
    if (ground, name) in CAPTURED:
        expected = 0
        assert "traced before" in outcome["reports"][-1]
    assert outcome["matrices_in_shards"] == expected, outcome["reports"]
    assert not any("failed" in text for text in outcome["reports"])


def test_the_guide_to_tpus_is_sharded_from_the_first_step_on() -> None:
    check("tpu", "guide", "guide")
    assert all(": sharded " in text for text in found("tpu", "guide")["guide"]["reports"])


@pytest.mark.slow
@pytest.mark.parametrize(("ground", "name"), [(g, n) for g, names in NAMES.items() for n in names])
def test_nothing_differs_by_a_bit_and_all_matrices_are_sharded(ground: str, name: str) -> None:
    check(ground, name, *NAMES[ground])


@pytest.mark.slow
def test_in_one_process_the_step_that_makes_the_slots_is_told_to_build_them_before() -> None:
    first, *later = found("one_device", *NAMES["one_device"])["guide"]["reports"]
    assert "nothing sharded" in first
    assert "optimizer.build(model.trainable_variables)" in first
    assert later and all(": sharded " in text for text in later)
