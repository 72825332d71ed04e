"""Keras 3 fails on workers; repaired, it trains there as on as many replicas of one process.

The weights are the same bit for bit: a sum of two gradients has one order only, halving is exact,
each worker gets the part of a batch that the replica of its number gets, and oneDNN is off.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
from keras.src.backend.tensorflow import trainer

from tests.workers.keras_on_workers import Bug, keras_on_workers
from tests.workers.processes import CompletedWorker, launch

_REPAIR = "tests/workers/keras_on_workers.py"


def _on_workers(repaired: Sequence[Bug], where: str = "workers") -> list[CompletedWorker]:
    names = [bug.name for bug in repaired]
    return launch("tests.workers.keras_run", [where, *names], workers=2, seconds=180)


@functools.cache
def _trained() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What both workers print with the repair, and what a process of two replicas prints."""
    first, second = _on_workers(tuple(Bug))
    (reference,) = launch("tests.workers.keras_run", ["mirrored"], workers=1, seconds=180)
    return first.answer, second.answer, reference.answer


@pytest.mark.slow
def test_unmodified_keras_fails_on_workers() -> None:
    for worker in _on_workers([]):
        assert worker.returncode, f"Keras runs on workers now: remove the repair, {_REPAIR}"
        assert any(bug.value in worker.errors for bug in Bug), worker.shown


@pytest.mark.slow
@pytest.mark.parametrize("bug", Bug)
def test_neither_repair_can_be_left_out(bug: Bug) -> None:
    for worker in _on_workers([other for other in Bug if other is not bug]):
        assert worker.returncode, (
            f"Keras runs on workers now without one repair: remove that of {bug}, {_REPAIR}"
        )
        assert bug.value in worker.errors, worker.shown


@pytest.mark.slow
def test_repaired_keras_trains_on_two_workers_as_on_two_replicas() -> None:
    first, second, reference = _trained()
    # Two layers, their kernels' and biases' two moments, the counter and the learning rate.
    assert len(reference["variables"]) == 4 + 8 + 2
    assert first["variables"] == second["variables"] == reference["variables"]


@pytest.mark.slow
def test_sharded_it_trains_so_too() -> None:
    *_, reference = _trained()
    assert reference["verdicts"] == []
    for worker in _on_workers(tuple(Bug), "sharded"):
        assert worker.answer == reference | {"verdicts": ["sharded"]}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["batches", "epochs", "evaluation"])
def test_losses_and_metrics_are_those_of_all_replicas(what: str) -> None:
    first, second, reference = _trained()
    assert first[what] == second[what] == reference[what]


@pytest.mark.slow
def test_every_worker_predicts_for_all_examples() -> None:
    first, second, reference = _trained()
    assert reference["predictions"][0] == [22, 3]
    assert first["predictions"] == second["predictions"] == reference["predictions"]


def test_the_repair_ends_with_its_block() -> None:
    def found() -> tuple[Any, Any]:
        return trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica

    before = found()
    with keras_on_workers():
        inside = found()
    assert found() == before
    assert all(one is not other for one, other in zip(inside, before, strict=True))
