"""No two names that are given away are alike."""

from __future__ import annotations

import pytest

from tf_wu_shard.unique_names import UniqueNames


@pytest.mark.parametrize(
    ("taken", "asked", "given"),
    [
        ((), ("a", "b"), ["a", "b"]),
        ((), ("a", "a", "a"), ["a", "a_1", "a_2"]),
        (("a",), ("a", "b"), ["a_1", "b"]),
        (("a_1",), ("a", "a"), ["a", "a_2"]),
        ((), ("a", "a_1", "a", "a_1"), ["a", "a_1", "a_2", "a_1_1"]),
        (("", "_1"), ("", ""), ["_2", "_3"]),
    ],
)
def test_a_name_that_is_taken_gets_the_next_number_that_is_free(
    taken: tuple[str, ...], asked: tuple[str, ...], given: list[str]
) -> None:
    names = UniqueNames(taken)
    assert [names.take(name) for name in asked] == given
    assert all(name in names for name in (*taken, *given))
    assert "another" not in names
