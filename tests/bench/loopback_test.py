"""Bytes over the loopback interface are read as Linux counts them, or are not known."""

from __future__ import annotations

import pathlib

import pytest

from tf_wu_shard.bench import loopback

TABLE = """Inter-|   Receive                        |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
  eth0: 77 1 0 0 0 0 0 0 88 1
    lo: 1234 9 0 0 0 0 0 0 1234 9
"""


def test_what_the_interface_received_is_read(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "dev"
    table.write_text(TABLE, encoding="utf-8")
    monkeypatch.setattr(loopback, "_INTERFACES", table)
    assert loopback.received_bytes() == 1234
    table.write_text(TABLE.replace("    lo:", "  wlan:"), encoding="utf-8")
    assert loopback.received_bytes() is None


def test_a_system_that_counts_nothing_tells_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "_INTERFACES", tmp_path / "missing")
    assert loopback.received_bytes() is None
    assert loopback.bytes_between(None, 5) is loopback.bytes_between(5, None) is None
    assert loopback.bytes_between(3, 5) == 2
