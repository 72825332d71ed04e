"""What an update moves, and the time that gives."""

from __future__ import annotations

import pytest

from tf_wu_shard.bench.formulas import bytes_moved, limit_s


@pytest.mark.parametrize(
    ("optimizer", "extra"),
    [("sgd", 6), ("momentum", 8), ("lion", 8), ("adam", 10), ("adamw", 10), ("amsgrad", 12)],
)
def test_an_update_moves_the_gradients_the_sum_the_weight_twice_and_each_slot(
    optimizer: str, extra: int
) -> None:
    assert bytes_moved(optimizer, 8, 1000) == (8 + extra) * 1000
    assert bytes_moved(optimizer, 2, 1000) == (2 + extra) * 1000


def test_the_limit_is_the_step_without_update_and_the_traffic_at_the_copy_speed() -> None:
    assert limit_s(0.25, moved=3_000, copy_bytes_per_s=6_000.0) == 0.75
