"""Which tensors travel together.

A collective, or a fan of cross-device edges, costs a fixed time however little it carries, so small
tensors share one. Packing costs a copy, so a tensor of the bucket's size or more travels alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


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
