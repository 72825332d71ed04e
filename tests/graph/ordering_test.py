"""What cannot be put in order is found, and nothing beside it."""

from __future__ import annotations

import random

import pytest

from tf_wu_shard.graph.ordering import in_cycles

CASES: dict[str, tuple[dict[str, list[str]], set[str]]] = {
    "nothing": ({}, set()),
    "a chain": ({"c": ["b"], "b": ["a"]}, set()),
    "a diamond": ({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}, set()),
    "needed twice by one": ({"b": ["a", "a"], "a": []}, set()),
    "itself": ({"a": ["a"]}, {"a"}),
    "what a cycle needs": ({"a": ["b", "x"], "b": ["a"], "x": ["y"], "y": []}, {"a", "b"}),
    "what needs a cycle": ({"a": ["b"], "b": ["a"], "x": ["a"], "y": ["x"]}, {"a", "b"}),
    "the way between two cycles": (
        {"a": ["b"], "b": ["a"], "way": ["a"], "c": ["d", "way"], "d": ["c"]},
        {"a", "b", "way", "c", "d"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_cycles_and_what_lies_between_them(case: str) -> None:
    needs, expected = CASES[case]
    assert in_cycles(needs) == expected


def test_random_graphs_agree_with_reachability() -> None:
    rng = random.Random(7)
    for _ in range(200):
        names = [str(i) for i in range(rng.randint(1, 12))]
        needs = {n: rng.choices(names, k=rng.randint(0, 2)) for n in names}
        behind = {n: set(needs[n]) for n in names}
        for middle in names:
            for name in names:
                if middle in behind[name]:
                    behind[name] |= behind[middle]
        own = {n for n in names if n in behind[n]}
        between = {n for n in names if own & behind[n] and any(n in behind[o] for o in own)}
        assert in_cycles(needs) == own | between
