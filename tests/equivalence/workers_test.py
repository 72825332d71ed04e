"""Workers of several processes train what they train unsharded, and read slots as they like."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import pytest

from tests.equivalence.workers_run import SAMPLE, SAMPLE_OF_SEVERAL
from tests.workers.processes import launch

# Norms are added up shard by shard there.
_ADDED_UP_OTHERWISE = {"normed_three_times", "two_heads"}

_MODULES = (
    "called_scenarios",
    "loop_scenarios",
    "matrix_scenarios",
    "repeated_scenarios",
    "row_scenarios",
    "slot_moments_scenarios",
    "tf_keras_scenarios",
)


# What a loop runs reads a slot, without a sum of its own, whose collectives it could read by.
_REFUSED = {"updated_or_reset", "while_it_is_small"}


@functools.cache
def found(what: str) -> list[Any]:
    """What came of a launch of two workers, by worker."""
    done = launch("tests.equivalence.workers_run", [what], workers=2, seconds=600)
    return [worker.answer for worker in done]


@pytest.mark.parametrize("name", SAMPLE)
def test_nothing_differs_by_a_bit_on_two_workers(name: str) -> None:
    for worker in found("all"):
        outcome = worker["scenarios"][name]
        assert outcome["apart"] == []
        # One has a single weight and its momentum.
        assert outcome["in_shards"] >= (1 if name == "called_twice" else 4)
        assert not any("failed" in text for text in outcome["reports"])


def test_a_worker_reads_alone_while_the_others_wait_in_a_step() -> None:
    chief = found("all")[0]
    assert chief["read_alone"] == chief["expected"]


def test_a_worker_saves_alone_what_it_saves_unsharded() -> None:
    chief = found("all")[0]
    assert chief["saved_alone"] == chief["expected"]


def test_all_workers_have_the_unsharded_state_after_another_step() -> None:
    for worker in found("all"):
        assert worker["after"] == worker["expected_after"]


def test_a_worker_keeps_half_of_each_slot() -> None:
    first, second = (worker["kept"] for worker in found("all"))
    assert len(first) == len(second) >= 4
    for (own, size), (other, _) in zip(first, second, strict=True):
        assert own + other == size
        # Shards begin at 16 floats.
        assert abs(own - other) <= 2 * 16


@pytest.mark.slow
@pytest.mark.parametrize("module", _MODULES)
def test_nothing_differs_by_a_bit_in_any_scenario(module: str) -> None:
    names = importlib.import_module(f"tests.equivalence.{module}").SCENARIOS.keys() - _REFUSED
    arguments = [f"{module}@workers", *sorted(names)]
    for worker in launch("tests.equivalence.scenarios_run", arguments, workers=2, seconds=900):
        for name, outcome in worker.answer.items():
            # Two sums of a thousand squares in another order, of numbers around 1.
            assert outcome["by"] <= (1e-6 if name in _ADDED_UP_OTHERWISE else 0.0), name
            assert not any("failed" in text for text in outcome["reports"]), name


@pytest.mark.slow
def test_three_workers_take_turns_with_matrices_and_end_with_the_same_bits() -> None:
    arguments = ["matrix_scenarios@workers", "muon_restored", "shampoo"]
    launched = launch("tests.equivalence.scenarios_run", arguments, workers=3, seconds=300)
    first, *others = (worker.answer for worker in launched)
    for name, outcome in first.items():
        assert all(other[name]["digest"] == outcome["digest"] for other in others)
        assert all("whole by turns, 2 of 5 on each replica" in text for text in outcome["reports"])
        # A gradient's three terms are added up in another order.
        assert outcome["by"] <= 1e-5


@pytest.mark.slow
def test_workers_of_two_replicas_train_in_shards_and_end_with_the_same_bits() -> None:
    first, second = (worker["scenarios"] for worker in found("several"))
    assert list(first) == list(SAMPLE_OF_SEVERAL)
    for name, outcome in first.items():
        assert outcome["digest"] == second[name]["digest"]
        assert outcome["in_shards"] >= 4
        assert all("2 workers, 2 replicas each" in text for text in outcome["reports"])
        # Four terms of a gradient are added up in another order; of steps of 0.01 each.
        assert outcome["by"] <= 1e-6, name
    (muon,) = first["muon"]["reports"]
    assert "nor do workers of several replicas take turns with whole tensors yet" in muon


@pytest.mark.slow
def test_a_worker_of_two_replicas_reads_alone_what_all_read_together() -> None:
    chief, other = found("several")
    assert chief["read_alone"] == chief["read_together"] == other["read_together"]
    assert chief["written"] == other["written"] == 1.0


@pytest.mark.slow
def test_a_worker_without_the_flag_leaves_all_as_they_were() -> None:
    with_flag, without = found("apart")
    assert with_flag["equal"] and without["equal"]
    (reason,) = with_flag["reasons"]
    assert "worker 1 has not answered within 2 seconds" in reason
    assert without["reasons"] == []
