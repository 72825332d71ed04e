"""Workers in rounds, each a process: nothing is lost, all have the same, and a lost one is told."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.workers.processes import CompletedWorker, completed, launch, running
from tf_wu_shard.partial_sums.options import FLAG

_RUN = "tests.partial_sums.rounds.workers_run"


@pytest.mark.parametrize("mode", ["majority", pytest.param("solo", marks=pytest.mark.slow)])
def test_weights_are_less_by_all_gradients(mode: str) -> None:
    _check_sums(mode, launch(_RUN, [mode, "late"], workers=3, seconds=120))


def test_workers_of_several_replicas_are_late_as_one() -> None:
    _check_sums("solo", launch(_RUN, ["solo", "late", "two replicas"], workers=2, seconds=120))


@pytest.mark.slow
def test_workers_of_several_replicas_go_through_all_scenarios(tmp_path: pathlib.Path) -> None:
    run = "tests.partial_sums.rounds.scenarios_run"
    found = [one.answer for one in launch(run, [str(tmp_path), "2"], workers=2, seconds=240)]
    for one in found:
        assert one["table"] == {"is_complete": True}
        assert one["momentum"]["momentum"] == [-8.0] * 5
        assert one["needs_more"]["after"] == [-8.0, -8.0]
        # A dataset's batches are for all replicas of a worker.
        assert one["in_a_loop"] == {"steps": 4, "is_complete": True}
        assert one["batches_outside"] == {"is_complete": True}
        assert set(one["fit"]["collectives"]) == {f"{FLAG}/alive"}
        assert one["restart"] == {"first_epoch": 2, "is_restored": True, "steps": 3 * 6}
        assert all(one["refused"].values())
    assert found[0]["fit"] == found[1]["fit"]


def _check_sums(mode: str, workers: Sequence[CompletedWorker]) -> None:
    done = [one.answer for one in workers]
    # After as many steps all workers have the same, to the bit.
    assert len({tuple(one["seen"]) for one in done}) == 1
    for one in done:
        assert one["is_complete"]
        # What hands in what is late is no step.
        assert one["iterations"] == 30
        assert f"1 gradient summed in rounds ({mode})" in one["changes"][FLAG]
        assert "; 100.0 % of them" not in one["changes"][FLAG]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[CompletedWorker]:
    """The workers that went through all scenarios."""
    run, folder = "tests.partial_sums.rounds.scenarios_run", tmp_path_factory.mktemp("backups")
    return launch(run, [str(folder)], workers=2, seconds=240)


@pytest.fixture(scope="module")
def scenarios(done: list[CompletedWorker]) -> list[dict[str, Any]]:
    """What each worker came to in each scenario."""
    return [one.answer for one in done]


def test_rows_of_a_table_are_less_by_all_gradients(scenarios: list[dict[str, Any]]) -> None:
    assert all(one["table"] == {"is_complete": True} for one in scenarios)


def test_what_is_late_at_the_end_moves_weights_by_their_momentum(
    scenarios: list[dict[str, Any]],
) -> None:
    expected = {"momentum": [-4.0] * 5, "is_moved_by_it": True, "was_late": True}
    assert all(one["momentum"] == expected for one in scenarios)


def test_what_cannot_be_handed_in_waits_for_the_next_step(
    done: list[CompletedWorker], scenarios: list[dict[str, Any]]
) -> None:
    assert all(one["needs_more"]["after"] == [-4.0, -4.0] for one in scenarios)
    assert all(one["needs_more"]["flushed"] > [-4.0, -4.0] for one in scenarios)
    assert all(one.errors.count("what is late is not in the weights") == 1 for one in done)


def test_all_take_as_many_steps_as_the_longest_dataset_has_batches(
    scenarios: list[dict[str, Any]],
) -> None:
    assert all(one["in_a_loop"] == {"steps": 7, "is_complete": True} for one in scenarios)


def test_who_takes_batches_outside_of_the_step_is_told_that_it_waits(
    done: list[CompletedWorker], scenarios: list[dict[str, Any]]
) -> None:
    assert all(one["batches_outside"] == {"is_complete": True} for one in scenarios)
    assert all(one.errors.count("next(iterator) outside of a tf.function") == 1 for one in done)


def test_fit_waits_in_no_collective(scenarios: list[dict[str, Any]]) -> None:
    first, other = (one["fit"] for one in scenarios)
    assert first == other
    assert first["losses"][-1] < first["losses"][0]
    assert first["steps"] == 4 * 6
    # What is late is in the weights before they are validated.
    assert first["validates_what_it_keeps"]
    assert set(first["collectives"]) == {f"{FLAG}/alive"}


def test_a_fit_stops_early_on_all_workers(scenarios: list[dict[str, Any]]) -> None:
    assert all(one["stops_early"] == 2 for one in scenarios)


def test_who_evaluates_and_predicts_hands_in_nothing(scenarios: list[dict[str, Any]]) -> None:
    expected = {"stays": True, "was_late": True}
    assert all(one["is_only_looked_at"] == expected for one in scenarios)


def test_who_keeps_a_momentum_is_warned_of_solo_rounds(done: list[CompletedWorker]) -> None:
    assert all(one.errors.count("trainings have diverged that way") == 1 for one in done)


def test_who_calls_a_step_waits_in_no_collective(scenarios: list[dict[str, Any]]) -> None:
    said = "1 sums are of the round before"
    expected = {"is_less": True, "collectives": [], "said": said}
    assert all(one["caller"] == expected for one in scenarios)


def test_a_training_goes_on_from_its_backup(scenarios: list[dict[str, Any]]) -> None:
    expected = {"first_epoch": 2, "is_restored": True, "steps": 3 * 6}
    assert all(one["restart"] == expected for one in scenarios)


def test_a_step_in_rounds_is_not_sharded(scenarios: list[dict[str, Any]]) -> None:
    for one in scenarios:
        assert "1 gradient summed in rounds (solo)" in one["both_flags"]
        assert "nothing sharded" in one["both_flags"]
        assert "rounds that no step waits for" in one["both_flags"]


def test_a_checkpoint_holds_what_is_late_for_any_number_of_workers(tmp_path: pathlib.Path) -> None:
    run = "tests.partial_sums.rounds.checkpoint_run"
    key = "weight/late_gradients/.ATTRIBUTES/py_state"
    for one in launch(run, ["write", str(tmp_path)], workers=3, seconds=120):
        assert not one.answer["was_complete"]
        assert one.answer["is_complete"]
        assert one.answer["late"] == [[key], [key]]
        assert one.answer["several"]["late"] == [True, True]
        assert one.answer["table"] == [0.0, -9.0, 0.0, -18.0, 0.0]
    found = [one.answer for one in launch(run, ["read", str(tmp_path)], workers=2, seconds=120)]
    assert all(one["is_complete"] and one["is_taken_back"] for one in found)
    # Three workers gave 1 each; what is late of other weights is as it was.
    several = {"encoder": -3.0, "head": -4 * 7.0, "more": -2.0}
    assert all({name: one[name] for name in several} == several for one in found)
    assert [one["steps"] for one in found] == [6, 6]
    assert "do it on all workers, after as many steps on each" in found[0]["alone"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a loss among gradients", "is summed together with gradients, which are added up"),
        ("tokens", "is handed to a step that is summed in rounds, and would be of another round"),
        ("tokens in a loop", "is handed to a step that is summed in rounds"),
        ("a gather by the caller", "waits for all workers, and is no sum"),
        ("a statistic", "with a sum over the replicas that is not seen to be its gradient"),
        ("a sum of a sum", "made of what replicas put together before"),
        ("a gather", "CollectiveGatherV2) waits for all workers, and is no sum"),
    ],
)
def test_what_would_wait_is_refused(scenarios: list[dict[str, Any]], name: str, said: str) -> None:
    assert all(said in one["refused"][name] for one in scenarios)


def test_several_traces_of_steps_lose_nothing() -> None:
    run = "tests.partial_sums.rounds.several_traces_run"
    done = launch(run, [], workers=2, seconds=120)
    found = [one.answer for one in done]
    assert found[0] == found[1]
    # Each of two functions gives each element 1 or 100 on two workers, twice.
    assert found[0]["orders"] == [[-8.0] * 3, [-800.0] * 3]
    # A worker whose last batch is shorter traces once more, and knows the same of its gradient.
    assert found[0]["open_shapes"]["is_flushed"]
    assert found[0]["rates"] == [-6.0]
    # 1 from each worker in each of six steps, and in one more, where the other may be late.
    (less,) = found[0]["in_a_loop"]
    assert less in (-13.0, -14.0)
    assert all(one.errors.count("several functions train the same weights") == 1 for one in done)


def test_a_worker_that_is_killed_in_a_round_ends_the_others() -> None:
    with running("tests.partial_sums.rounds.endless_run", workers=3) as workers:
        for worker in workers:
            worker.line("takes steps", 60)
        workers[1].kill()
        for worker in (workers[0], workers[2]):
            assert worker.line("ended by", 30) == "ended by UnavailableError"
            assert worker.line("threads", 30) == "threads: []"


def test_who_is_slow_for_ever_is_named_and_may_end_in_the_midst_of_a_round() -> None:
    with running("tests.partial_sums.rounds.endless_run", ["1"], workers=3) as workers:
        for worker in (workers[0], workers[2]):
            said = worker.line("takes steps", 60)
            assert re.search(r"; the others waited for worker 1 to catch up in \d+", said)
            assert worker.line("ended by", 60) == "ended by UnavailableError"
            assert worker.line("threads", 30) == "threads: []"
        slow, *_ = completed([workers[1]], 30)
        assert slow.returncode == 0, slow.shown
