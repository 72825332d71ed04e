"""Which tensors travel together.

A collective, or a fan of cross-device edges, costs a fixed time however little it carries, so small
tensors share one. Packing costs a copy, so a tensor of the bucket's size or more travels alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

# How much larger the next size is that is tried.
_GROWTH = 1.05


def assign_buckets(tensors: Sequence[tuple[int, Hashable]], bucket_bytes: int) -> list[int]:
    """Fills buckets in order.

    Args:
        tensors: For each tensor `(bytes, kind)`, in the order in which gradients become ready.
        bucket_bytes: What a bucket may hold.

    Returns:
        For each tensor, the number of its bucket. Numbers count up from 0 in order of the first
        tensor; tensors of one bucket are of one kind.
    """
    numbers: list[int] = []
    open_: dict[Hashable, tuple[int, int]] = {}
    count = 0
    for size, kind in tensors:
        number, held = open_.get(kind, (-1, bucket_bytes))
        if size >= bucket_bytes:
            numbers.append(count)
            count += 1
        elif number >= 0 and held + size <= bucket_bytes:
            numbers.append(number)
            open_[kind] = (number, held + size)
        else:
            numbers.append(count)
            open_[kind] = (count, size)
            count += 1
    return numbers


def assign_in_turn(
    tensors: Sequence[tuple[int, Hashable]],
    ready: Sequence[tuple[int, int]],
    bucket_bytes: int,
    most: int,
    exactly: int | None = None,
) -> list[int]:
    """Fills buckets that travel one after the other.

    Args:
        tensors: For each tensor `(bytes, kind)`, in any order.
        ready: For each, when its gradient is ready; no two of one kind wait for each other.
        bucket_bytes: What a bucket may hold, where there are not too many buckets then.
        most: How many buckets there may be; of more kinds than that, one of each. They hold more
            then, but at most twice what `most` equal ones would.
        exactly: What a bucket may hold however many there are; None to go by the two before.

    Returns:
        For each tensor, the number of its bucket. Numbers count up from 0 in the order in which
        buckets are full; tensors of one bucket are of one kind.
    """
    turn = sorted(range(len(tensors)), key=lambda index: ready[index])
    in_turn = [tensors[index] for index in turn]
    capacity = _enough_for(in_turn, bucket_bytes, most) if exactly is None else exactly
    found = dict(zip(turn, assign_buckets(in_turn, capacity), strict=True))
    full: dict[int, tuple[int, int]] = {}
    for index in turn:
        full[found[index]] = ready[index]
    order = sorted(full, key=lambda number: full[number])
    return [order.index(found[index]) for index in range(len(tensors))]


def _enough_for(tensors: Sequence[tuple[int, Hashable]], bucket_bytes: int, most: int) -> int:
    """About the smallest size, from `bucket_bytes` on, with few enough buckets."""
    few = max(most, len({kind for _, kind in tensors}))
    largest = max(bucket_bytes, 2 * sum(size for size, _ in tensors) // most)
    while bucket_bytes < largest and len(set(assign_buckets(tensors, bucket_bytes))) > few:
        bucket_bytes = min(int(bucket_bytes * _GROWTH) + 1, largest)
    return bucket_bytes
