"""Steps in turn, and the comparison of weights."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.bench.measure import _rounds, max_abs_weight_diff
from tf_wu_shard.bench.settings import Settings


class Scripted:
    """Stands for a process: keeps what it was asked, answers from its script."""

    def __init__(self, name: str, log: list[str], weights: list[np.ndarray] | None = None) -> None:
        self._name, self._log, self._weights = name, log, weights

    def ask(self, command: str, **arguments: Any) -> Any:
        self._log.append(f"{self._name} {command}")
        if command == "weights":
            assert self._weights is not None
            np.savez(arguments["file"], self._weights[arguments["replica"]])
        return {"seconds": float(len(self._log))}


def _workers(log: list[str], *names: str) -> dict[str, Worker]:
    return {name: cast(Worker, Scripted(name, log)) for name in names}


def test_modes_take_steps_in_turn() -> None:
    log: list[str] = []
    samples = _rounds(_workers(log, "a", "b"), 3, lambda line: None, copy_bytes=1000)
    assert log == ["a step", "b step"] * 3
    assert samples.seconds == {"a": [1.0, 3.0, 5.0], "b": [2.0, 4.0, 6.0]}
    assert len(samples.copies) == 3


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]], 0.0),
        ([[1, 2], [3, 4]], [[1, 2], [3, 6.5]], 2.5),
        ([[np.nan, 2], [np.inf, 4]], [[np.nan, 2], [np.inf, 4]], 0.0),
        ([[np.nan, 2], [3, 4]], [[1, 2], [3, 4]], np.nan),
    ],
)
def test_weights_are_compared_on_every_replica(
    one: list[list[float]], other: list[list[float]], difference: float
) -> None:
    first, second = (
        cast(Worker, Scripted("process", [], [np.array(row) for row in rows]))
        for rows in (one, other)
    )
    found = max_abs_weight_diff(first, second, Settings(replicas=2))
    np.testing.assert_equal(found, difference)
