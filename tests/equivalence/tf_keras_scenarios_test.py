"""What the Keras before 3 branches on is the same in shards: an overflow skips a step of all."""

from __future__ import annotations

import functools
from typing import Any

from tests.equivalence.own_process import answer_of


@functools.cache
def found() -> dict[str, Any]:
    """What came of every scenario under a MirroredStrategy; TPUs refuse to scale losses."""
    names = ("overflowing", "overflowing_fused")
    results: dict[str, Any] = answer_of("scenarios_run", "tf_keras_scenarios@mirrored", *names)
    return results


def test_an_overflow_of_one_replica_skips_the_step_everywhere() -> None:
    outcome = found()["overflowing"]
    assert outcome["apart"] == []
    # Two slots of each of two kernels.
    assert outcome["matrices_in_shards"] == 4
    (report,) = outcome["reports"]
    assert "sharded 4 of 4 variables" in report


def test_a_fused_update_in_a_branch_stays_whole_and_says_why() -> None:
    outcome = found()["overflowing_fused"]
    assert outcome["apart"] == []
    assert outcome["in_shards"] == 0
    assert all("ResourceApplyAdam is not done with the values" in r for r in outcome["reports"])
