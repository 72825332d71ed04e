"""Optimizers that look up rows of what they update train embeddings bit for bit, in shards."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.equivalence import row_branches
from tests.equivalence.own_process import answer_of
from tests.equivalence.row_scenarios import SCENARIOS

# Slots in shards of the table and the kernel.
SLOTS = {
    **dict.fromkeys(row_branches.SCENARIOS, 2),
    # The table stays in its branch, the matrix does not.
    **dict.fromkeys(("rows_in_both_branches", "rows_centred_in_a_branch"), 1),
    "clipped_by_rows": 2,
    "decayed_adam": 4,
    "densified": 2,
    "unlike_batches_by_rows": 4,
    "unlike_batches_in_branches": 6,
    "unlike_batches_shared": 4,
}


@functools.cache
def found() -> dict[str, Any]:
    """What came of every scenario, all run by one process."""
    results: dict[str, Any] = answer_of("scenarios_run", "row_scenarios@mirrored")
    return results


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_differs_by_a_bit_and_all_slots_are_in_shards(name: str) -> None:
    outcome = found()[name]
    assert outcome["apart"] == []
    assert outcome["matrices_in_shards"] == SLOTS[name]
