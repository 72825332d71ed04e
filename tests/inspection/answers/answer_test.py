"""The verdict on a model counts what trains, and each training once."""

from __future__ import annotations

import pytest

from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection

TRAINS = FunctionAnswer("train", trains=True, verdict="trains", writes=3)
BY_CALL = FunctionAnswer("step", trains=True, verdict="trains by calling", trained_by="train")
READS = FunctionAnswer("predict", trains=False, verdict="0 variable writes")
COUNTS = FunctionAnswer("count", trains=False, verdict="1 variable writes", writes=1)


@pytest.mark.parametrize(
    ("functions", "verdict"),
    [
        ((), "0 variable writes, nothing to shard"),
        ((READS,), "0 variable writes, nothing to shard"),
        ((READS, COUNTS), "no function is known to train"),
        ((READS, TRAINS, COUNTS), "1 function trains"),
        ((TRAINS, BY_CALL), "1 function trains"),
        ((TRAINS, TRAINS), "2 functions train"),
    ],
)
def test_a_training_counts_once_however_many_call_it(
    functions: tuple[FunctionAnswer, ...], verdict: str
) -> None:
    assert Inspection("SavedModel", 3, functions, ()).verdict == verdict


def test_what_is_only_supposed_is_the_verdict() -> None:
    assert Inspection("Weights", 3, (TRAINS,), (), what_if="trained with Adam").verdict == (
        "trained with Adam"
    )
