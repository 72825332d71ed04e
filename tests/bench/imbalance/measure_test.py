"""A few steps of workers that are late, in a loop and by fit."""

from __future__ import annotations

import pytest

from tf_wu_shard.bench.imbalance.measure import measure_imbalance
from tf_wu_shard.errors import OptionError


@pytest.mark.parametrize(
    "task", ["digits_by_fit", *(pytest.param(one, marks=pytest.mark.slow) for one in ("digits",))]
)
def test_all_modes_train_and_are_told_apart(task: str) -> None:
    lines: list[str] = []
    result = measure_imbalance("one", 20.0, task, 2, 8, 6, 1, 2, lines.append)
    assert len(lines) == len(result.trainings) == 6
    for one in result.trainings:
        assert [len(worker) for worker in one.steps] == [6, 6]
        assert len(one.losses) == 6
        assert 0 < one.share_in_time <= 1
        assert all(s.begun <= s.ready <= s.handed_in <= s.ended for w in one.steps for s in w)
    late = {one.mode: one.staleness for one in result.trainings if not one.momentum}
    assert late["synchronous"] == 0
    # Who is late by 20 ms, in steps of a few, is late for what the first starts.
    assert late["solo"] > 0


@pytest.mark.parametrize("name", ["batch", "steps", "seeds", "workers"])
def test_nothing_of_none_is_measured(name: str) -> None:
    asked = {"workers": 2, "batch": 8, "steps": 6, "seeds": 1, name: 0}
    shown = "replicas" if name == "workers" else name
    with pytest.raises(OptionError, match=f"{shown} must be at least"):
        measure_imbalance("one", 20.0, "digits", max_staleness=2, say=lambda line: None, **asked)
