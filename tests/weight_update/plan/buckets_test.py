"""Small tensors travel together, large ones alone, in the order in which they become ready."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as draw

from tf_wu_shard.weight_update.plan.buckets import assign_buckets, assign_in_turn

TENSORS = draw.lists(draw.tuples(draw.integers(0, 12), draw.sampled_from([1, 2])), max_size=12)


def test_tensors_share_a_bucket_until_it_is_full() -> None:
    assert assign_buckets([(4, 1), (4, 1), (2, 1), (1, 1)], 10) == [0, 0, 0, 1]


def test_a_tensor_of_the_buckets_size_travels_alone_and_closes_nothing() -> None:
    assert assign_buckets([(4, 1), (10, 1), (4, 1), (11, 1)], 10) == [0, 1, 0, 2]


def test_element_types_do_not_mix() -> None:
    assert assign_buckets([(1, 1), (1, 2), (1, 1), (1, 2)], 10) == [0, 1, 0, 1]


@given(TENSORS, draw.integers(1, 20))
def test_no_bucket_overflows_and_numbers_count_up(
    tensors: list[tuple[int, int]], capacity: int
) -> None:
    numbers = assign_buckets(tensors, capacity)
    first_seen = list(dict.fromkeys(numbers))
    assert first_seen == list(range(len(first_seen)))
    for bucket in first_seen:
        members = [t for t, n in zip(tensors, numbers, strict=True) if n == bucket]
        assert len({dtype for _, dtype in members}) == 1
        assert sum(size for size, _ in members) <= capacity or len(members) == 1


def in_order(count: int) -> list[tuple[int, int]]:
    return [(0, place) for place in range(count)]


def test_buckets_hold_more_where_there_would_be_too_many() -> None:
    tensors = [(4, 1)] * 12
    assert len(set(assign_in_turn(tensors, in_order(12), 4, 12))) == 12
    assert assign_in_turn(tensors, in_order(12), 4, 4) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    # The user's own size counts, however many there are.
    assert len(set(assign_in_turn(tensors, in_order(12), 4, 4, exactly=5))) == 12


def test_buckets_are_numbered_as_they_become_full() -> None:
    # The last layer's gradients come first; the large one is ready between the small ones.
    tensors = [(3, 1), (9, 2), (3, 1), (4, 3)]
    ready = [(0, 7), (0, 5), (0, 2), (0, 1)]
    assert assign_in_turn(tensors, ready, 9, 9) == [2, 1, 2, 0]


def test_one_large_bucket_is_never_made_of_too_many_kinds() -> None:
    tensors = [(1, kind) for kind in range(9)]
    assert sorted(assign_in_turn(tensors, in_order(9), 1, 2)) == list(range(9))


@given(TENSORS, draw.integers(1, 20), draw.integers(1, 6), draw.randoms(use_true_random=False))
def test_buckets_in_turn_hold_one_kind_each_and_count_up(
    tensors: list[tuple[int, int]], least: int, most: int, random: Random
) -> None:
    ready = in_order(len(tensors))
    random.shuffle(ready)
    numbers = assign_in_turn(tensors, ready, least, most)
    assert sorted(set(numbers)) == list(range(len(set(numbers))))
    full: dict[int, tuple[int, int]] = {}
    for (_, kind), number, place in zip(tensors, numbers, ready, strict=True):
        kinds = {k for (_, k), n in zip(tensors, numbers, strict=True) if n == number}
        assert kinds == {kind}
        full[number] = max(full.get(number, (0, 0)), place)
    assert sorted(full, key=lambda number: full[number]) == sorted(full)
    # Twice what equal buckets would hold is the end: it may leave some more.
    held = [
        sum(size for (size, _), n in zip(tensors, numbers, strict=True) if n == number)
        for number in full
    ]
    largest = max(least, 2 * sum(size for size, _ in tensors) // most)
    assert all(size <= largest or numbers.count(n) == 1 for n, size in zip(full, held, strict=True))
