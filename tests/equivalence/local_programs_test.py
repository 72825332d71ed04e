"""Whatever moves the copies of a weight apart: as unsharded, or it is said that it is not so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

import tf_wu_shard
from tests.equivalence.in_process import turn_off, turn_on
from tests.equivalence.local_programs import Program
from tests.selection import cases
from tf_wu_shard.errors import StorageError

QUICK = [(seed,) for seed in range(8)]
CASES = cases(itertools.product(range(150)), QUICK)


@pytest.fixture(autouse=True)
def _flag() -> Iterator[None]:
    yield
    turn_off()


def outcome(strategy: tf.distribute.Strategy, seed: int, said: list[str]) -> str:
    """What comes of a program with the flag on.

    Args:
        strategy: What it runs under.
        seed: Which program.
        said: The warnings, which are added to.

    Returns:
        Why it is refused, what is warned of, or else "as unsharded" or "apart", and whether the
        step is sharded.
    """
    unsharded = Program(strategy, seed).run()
    turn_on()
    tf_wu_shard.clear_reports()
    try:
        sharded = Program(strategy, seed).run()
    except StorageError as error:
        return f"refused: {error}"
    reports = tf_wu_shard.reports()
    reasons = [left.reason for report in reports for left in report.left_alone]
    assert not any("pass failed" in reason for reason in reasons)
    warnings = [text for text in said if "alike at each step" in text or "stays alike" in text]
    if warnings:
        return f"warned: {warnings[0]}"
    same = all(map(np.array_equal, itertools.chain(*sharded), itertools.chain(*unsharded)))
    (step,) = (report for report in reports if report.function == "step")
    return f"{'as unsharded' if same else 'apart'}, {step.verdict}"


@pytest.mark.parametrize("seed", CASES)
def test_copies_are_as_unsharded_or_something_is_said(
    strategy_of: Callable[[int], tf.distribute.MirroredStrategy],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: said.append(text % values))
    came = outcome(strategy_of(2), seed, said)
    assert came.startswith(("refused: ", "warned: ", "as unsharded, "))
    assert not came.startswith("refused: ") or "lives in shards" in came
