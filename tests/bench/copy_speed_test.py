"""The copy that the limit is measured with."""

from __future__ import annotations

import contextlib
import time

import pytest

from tf_wu_shard.bench.copy_speed import CopySpeed


def test_bytes_count_once_as_read_and_once_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(CopySpeed(num_bytes=1000)) as speed:
        clock = iter([10.0, 14.0])
        monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
        assert speed.bytes_per_s() == 2 * 1000 / 4.0


def test_every_byte_is_copied_whatever_the_number_of_threads() -> None:
    with contextlib.closing(CopySpeed(num_bytes=1001)) as speed:
        targets = speed._targets
        assert sum(len(target) for target in targets) == 1001
        assert all(target.all() for target in targets)
