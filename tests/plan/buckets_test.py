"""Small tensors travel together, large ones alone, in the order in which they become ready."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as draw

from tf_wu_shard.plan.buckets import assign_buckets

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
