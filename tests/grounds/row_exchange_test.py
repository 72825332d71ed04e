"""Entries go to the replica whose rows they name, in their order, whatever rows they name."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grounds.dialect_test import run
from tf_wu_shard.grounds.row_exchange import own_entries, rows_of_table
from tf_wu_shard.layout import RowLayout, row_layout

pytestmark = pytest.mark.usefixtures("logical_cpus")

LISTS = {
    "each row": [*range(50)],
    "repeated rows": [3, 49, 3, 16, 15, 32, 3, 16],
    "none": [],
    "rows that the table does not have": [-2, 7, 50, 1000, 31],
}


def entries_of(rows: list[int], layout: RowLayout) -> list[tuple[list[int], list[int], list[int]]]:
    """Per shard, the places, the rows within it, and what these are in the table."""
    found, _ = run(
        [[np.asarray(rows, np.int32)]],
        lambda at, operands: [
            [*own, rows_of_table(at, own[1], layout, shard)]
            for shard in range(layout.num_shards)
            for own in [own_entries(at, operands[0][0], layout, shard)]
        ],
    )
    return [(one.tolist(), two.tolist(), three.tolist()) for one, two, three in found]


@pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("shards", [2, 3, 8])
def test_each_entry_is_one_shards_own(rows: list[int], shards: int) -> None:
    layout = row_layout((50, 1), shards, 4)
    found = entries_of(rows, layout)
    assert sorted(place for places, _, _ in found for place in places) == [*range(len(rows))]
    for shard, (places, within, in_table) in enumerate(found):
        assert places == sorted(places)
        named = [rows[place] for place in places]
        first, behind = layout.rows(shard)
        assert in_table == named and within == [row - first for row in named]
        # What the table does not have is refused by the shard at that end, as by the whole table.
        low, high = (shard == 0, shard == shards - 1)
        assert all((low or first <= row) and (high or row < behind) for row in named)
