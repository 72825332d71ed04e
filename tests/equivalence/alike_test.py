"""Models that are alike are told apart by all workers, in whatever order these come to them."""

from __future__ import annotations

import pytest

from tests.workers.processes import launch

_PROGRAM = "tests.equivalence.alike_run"

_ALL, _NOTHING = {"sharded"}, {"nothing sharded"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "verdicts"),
    [
        ("same_order", _ALL),
        # Who waits for the other's vote on another model than that one votes on gives up.
        ("other_order", None),
        ("one_first", None),
        ("one_looks", _NOTHING),
        ("each_looks", _NOTHING),
    ],
)
def test_weights_and_slots_are_those_of_the_unsharded_run(
    mode: str, verdicts: set[str] | None
) -> None:
    unsharded, sharded = (
        [worker.answer for worker in launch(_PROGRAM, [mode, flag], workers=2, seconds=200)]
        for flag in "01"
    )
    assert [digests for digests, _ in sharded] == [digests for digests, _ in unsharded]
    assert sharded[0][0] == sharded[1][0]
    # Both workers say the same of each step, in whatever order they came to it.
    first, second = (sorted(reported) for _, reported in sharded)
    assert first == second and first
    if verdicts is not None:
        assert {*first} == verdicts
