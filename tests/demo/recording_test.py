"""A training says each step's own loss and time, and what was sharded of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import keras
import numpy as np
import pytest

import tf_wu_shard
from tf_wu_shard.demo import recording


@pytest.fixture(autouse=True)
def _no_reports() -> Iterator[None]:
    tf_wu_shard.clear_reports()
    yield
    tf_wu_shard.clear_reports()


def test_a_step_is_said_with_its_own_loss_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    model.set_weights([np.zeros((1, 1), np.float32)])
    steps = recording.Steps()
    wanted = np.array([1.0, 2.0, 3.0], np.float32)
    rows = np.ones((3, 1), np.float32)
    model.fit(rows, wanted, batch_size=1, shuffle=False, verbose=0, callbacks=[steps])
    # The metric's mean over the epoch would be 1, 2.5 and 4.67.
    assert steps.losses == [1.0, 4.0, 9.0]
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["step"] for one in said] == [1, 2, 3]
    assert [one["loss"] for one in said] == steps.losses
    assert [one["seconds"] for one in said] == steps.seconds and min(steps.seconds) > 0.0


def test_two_variables_of_one_path_are_both_recorded() -> None:
    pair = [keras.Variable(np.full((2,), value), name="w") for value in (1.0, 2.0)]
    assert pair[0].path == pair[1].path
    assert {key: value.tolist() for key, value in recording.values(pair).items()} == {
        "000 w": [1.0, 1.0],
        "001 w": [2.0, 2.0],
    }


def test_of_a_training_without_reports_nothing_is_said() -> None:
    assert recording.sharding() is None
