"""Memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes
import pathlib
import sys

import pytest

from tf_wu_shard.storage import free_pages

_BLOCK = 64 * 1024
_BLOCKS = 1024


def _resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is resident")
def test_freed_blocks_below_one_in_use_go_back() -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        pytest.skip("another C library")
    library.malloc.restype = ctypes.c_void_p
    blocks = [ctypes.c_void_p(library.malloc(_BLOCK)) for _ in range(_BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, _BLOCK)
    before = _resident_bytes()
    # The library gives back by itself what is free above all that is in use.
    *freed, kept = blocks
    for block in freed:
        library.free(block)
    assert free_pages.hand_back(_BLOCK * _BLOCKS)
    # Half of them: other threads of the test's process take and free memory, too.
    assert before - _resident_bytes() > _BLOCK * _BLOCKS // 2
    library.free(kept)


def test_little_is_left_where_it_is() -> None:
    assert not free_pages.hand_back(1000)


def test_a_library_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not free_pages.hand_back(1 << 30)
