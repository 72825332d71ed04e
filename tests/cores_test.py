"""How many cores a process may use."""

from __future__ import annotations

import os

import pytest

from tf_wu_shard.cores import usable_cores


def test_cores_that_the_process_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert usable_cores() == 2


@pytest.mark.parametrize(("counted", "cores"), [(8, 8), (None, 1)])
def test_where_nobody_says_all_count(
    monkeypatch: pytest.MonkeyPatch, counted: int | None, cores: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert usable_cores() == cores
