"""Strategies that follow each other in a program train as they do unsharded, on all workers."""

from __future__ import annotations

import pytest

from tests.workers.processes import launch

_PROGRAM = "tests.equivalence.strategies_in_a_row_run"


@pytest.mark.slow
def test_each_strategy_has_votes_slots_and_collectives_of_its_own() -> None:
    found = []
    for shards in ("000", "011", "110"):
        for worker in launch(_PROGRAM, [shards], workers=2, seconds=200):
            was_sharded, digests = worker.answer
            assert was_sharded == shards
            found.append(digests)
    assert found == [found[0]] * 6 and len({*found[0]}) == 3
