"""Which exchanges are behind which, however their ops lie in the graph."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tf_wu_shard.weight_update.analysis.exchanges import steps_behind

CHAIN = """
a = Placeholder() [2]
first = Square(a) [2]
second = Square(first) [2]
third = Square(second) [2]
"""


def steps(text: str, *points: str) -> list[int]:
    return steps_behind(view_of(text), [point.split() for point in points])


def test_each_has_as_many_behind_it_as_stand_one_behind_the_other() -> None:
    assert steps(CHAIN, "third", "first", "second") == [2, 0, 1]
    assert steps(CHAIN, "third", "first") == [1, 0]


def test_control_edges_count() -> None:
    text = CHAIN + "waiting = Neg(a) [2] ^second\n"
    assert steps(text, "waiting", "first") == [1, 0]


def test_ops_of_one_point_are_not_behind_each_other() -> None:
    assert steps(CHAIN, "first second third") == [0]


def test_what_enters_a_late_op_of_a_point_is_behind_its_early_ones_as_well() -> None:
    text = """
a = Placeholder() [2]
early = Square(a) [2]
seen = Neg(early) [2]
sum = Sum(a) [2]
late = Mul(early, sum) [2]
"""
    assert steps(text, "sum", "early late", "seen") == [0, 1, 2]


def test_a_point_that_waits_for_itself_has_more_than_all_behind_it() -> None:
    assert steps(CHAIN, "first third", "a")[0] > 2
