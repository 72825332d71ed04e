"""Killed in the middle of a step and started again, a run ends where it would have ended."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.equivalence.in_process import StrategyOf, in_shards, state, turn_off, turn_on
from tests.equivalence.interrupted_run import DEADLY, EPOCHS, STEPS, train
from tests.selection import cases


@pytest.mark.parametrize("way", cases(["fit", "loop"], {"fit"}))
def test_a_killed_run_goes_on_to_the_weights_of_one_that_was_not(
    way: str, strategy_of: StrategyOf, tmp_path: pathlib.Path
) -> None:
    saved = tmp_path / "saved"
    killed = subprocess.run(
        [sys.executable, "-m", "tests.equivalence.interrupted_run", str(saved), way],
        cwd=pathlib.Path(__file__).parents[2],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    strategy = strategy_of(2)
    turn_on(on_refusal="raise")
    resumed, taken = train(strategy, saved, way, deadly=None)
    # It repeats the steps since the last whole interval, and does not start all over.
    assert taken == EPOCHS * STEPS - DEADLY // STEPS * STEPS < EPOCHS * STEPS
    whole, all_steps = train(strategy, tmp_path / "whole", way, deadly=None)
    assert all_steps == EPOCHS * STEPS
    turn_off()
    unsharded, _ = train(strategy, tmp_path / "unsharded", way, deadly=None)
    values = [[v.numpy().tobytes() for v in state(model)] for model in (resumed, whole, unsharded)]
    assert values[0] == values[1] == values[2]
    assert [sum(in_shards(v) for v in one.optimizer.variables) for one in (resumed, whole)] == [
        8,
        8,
    ]
    assert not any(in_shards(v) for v in unsharded.optimizer.variables)
