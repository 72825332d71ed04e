"""Whoever is interrupted ends what still runs, and nothing that has ended."""

from __future__ import annotations

import contextlib

import pytest

from tf_wu_shard.demo.under_way import end_all, ended_by


def test_what_runs_is_ended_once_asked_and_what_has_ended_is_not() -> None:
    ended: list[str] = []
    with ended_by(lambda: ended.append("first")):
        pass
    with ended_by(lambda: ended.append("second")), ended_by(lambda: ended.append("third")):
        end_all()
    end_all()
    assert sorted(ended) == ["second", "third"]


def test_a_run_that_fails_is_no_longer_under_way() -> None:
    ended: list[str] = []
    with pytest.raises(KeyError), ended_by(lambda: ended.append("failed")):
        raise KeyError
    end_all()
    assert ended == []


def test_one_end_may_end_others_meanwhile() -> None:
    ended: list[str] = []
    other = contextlib.ExitStack()
    other.enter_context(ended_by(lambda: ended.append("other")))
    with ended_by(other.close):
        end_all()
    end_all()
    assert ended in ([], ["other"])
