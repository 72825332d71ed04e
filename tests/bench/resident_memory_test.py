"""The high-water mark of resident memory."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from tf_wu_shard.bench import resident_memory

MIB = 1024 * 1024


def test_the_peak_includes_memory_that_was_given_back() -> None:
    # A first block as large as any earlier peak could have left free, so that the second must grow.
    held = np.ones(resident_memory.peak_bytes(), np.uint8)
    before = resident_memory.peak_bytes()
    more = np.ones(64 * MIB, np.uint8)
    del more
    after = resident_memory.peak_bytes()
    assert after - before > 32 * MIB
    assert held[-1]


def test_a_system_that_does_not_say_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(resident_memory, "_STATUS", tmp_path / "status")
    with pytest.raises(resident_memory.MemoryUnknownError, match="needs Linux"):
        resident_memory.peak_bytes()
