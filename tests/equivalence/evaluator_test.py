"""An evaluator beside the workers reads what a sharded run saved, and says what it is itself."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from typing import Any

import pytest

from tests.workers.processes import launch

# How many workers beside the other tasks: a chief is a worker, too.
CLUSTERS: dict[str, tuple[int, tuple[str, ...]]] = {
    "two workers": (2, ("evaluator",)),
    "a chief and a worker": (1, ("chief", "evaluator")),
}


@functools.cache
def found(cluster: str, flag: str) -> list[Any]:
    """What the tasks print, the evaluator last."""
    workers, beside = CLUSTERS[cluster]
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(pathlib.Path(folder)), flag]
        module = "tests.equivalence.evaluator_run"
        launched = launch(module, arguments, workers, seconds=240, beside=beside)
        return [task.answer for task in launched]


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_an_evaluator_has_the_weights_and_slots_of_the_workers(cluster: str) -> None:
    *workers, evaluator = found(cluster, "on")
    assert [worker["verdicts"] for worker in workers] == [["sharded"]] * 2
    for worker in workers:
        assert evaluator["state"] == worker["state"]
        assert evaluator["predicted"] == worker["predicted"]


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_workers_and_evaluator_end_as_without_the_flag(cluster: str) -> None:
    for with_flag, without in zip(found(cluster, "on"), found(cluster, "off"), strict=True):
        assert with_flag["state"] == without["state"]
    with_flag, without = (found(cluster, flag)[-1] for flag in ("on", "off"))
    assert with_flag["by_hand"] == without["by_hand"] == with_flag["seen"][-1]


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_an_evaluator_reports_no_evaluation_and_of_a_training_that_it_is_alone(
    cluster: str,
) -> None:
    evaluator = found(cluster, "on")[-1]
    assert evaluator["reports"] == []
    assert evaluator["trained"] == ["it trains on one replica: no gradient is reduced"]
