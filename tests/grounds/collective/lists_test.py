"""Lists of any lengths come out one after the other, without what filled them up on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.grounds.collective.collectives_test import group_of
from tests.grounds.dialect_test import run
from tests.nccl.lowering import runnable
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.collective.lists import gathered_lists

pytestmark = pytest.mark.usefixtures("logical_cpus")


def gathered(*lists: list[np.ndarray]) -> tuple[list[list[np.ndarray]], list[Any]]:
    """What each member gets of lists, `lists[n][member]`, and the nodes."""

    def emit(at: Emitter, fed: list[list[Value]]) -> list[list[Value]]:
        rows: list[list[Value]] = [[] for _ in fed]
        for number, member in enumerate(group_of(at, len(fed[0]))):
            named = {f"list{n}": own[number] for n, own in enumerate(fed)}
            found = gathered_lists(at.on(member.device), member, named)
            for row, name in zip(rows, named, strict=True):
                row.append(found[name])
        return rows

    return run([*lists], emit, runnable)


def test_the_members_entries_stand_in_the_order_of_their_group() -> None:
    given = [np.array(own, np.int32) for own in ([1, 2, 3], [], [4])]
    (found,), _ = gathered(given)
    assert [one.tolist() for one in found] == [[1, 2, 3, 4]] * 3


def test_an_entry_of_zeros_is_no_filling() -> None:
    given = [np.array(own, np.float32) for own in ([[0, 0]], [[5, 0], [0, 0], [0, 6]])]
    (found,), _ = gathered(given)
    for one in found:
        np.testing.assert_array_equal(one, [[0, 0], [5, 0], [0, 0], [0, 6]])


def test_where_nobody_has_an_entry_the_list_is_empty_and_its_rows_keep_their_shape() -> None:
    nothing = np.zeros((0, 2, 3), np.float32)
    (found,), _ = gathered([nothing, nothing])
    assert [one.shape for one in found] == [(0, 2, 3)] * 2


def test_lists_of_different_rows_belong_together_entry_by_entry_and_are_counted_once() -> None:
    rows = [np.array(own, np.int64) for own in ([7], [8, 9])]
    values = [np.array(own, np.float16) for own in ([[7, 7]], [[8, 8], [9, 9]])]
    (found_rows, found_values), nodes = gathered(rows, values)
    for own_rows, own_values in zip(found_rows, found_values, strict=True):
        assert own_rows.tolist() == [7, 8, 9] and own_values.dtype == np.float16
        np.testing.assert_array_equal(own_values, np.repeat(own_rows[:, None], 2, 1))
    # The lengths once and each list once, by both members.
    assert sum(node.op == "CollectiveGatherV2" for node in nodes) == 2 * 3
