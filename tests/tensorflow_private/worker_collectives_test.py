"""A worker that is lost is told from one that says nothing, and a cause is told in one line."""

from __future__ import annotations

import types
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private import worker_collectives


def peers(monkeypatch: pytest.MonkeyPatch, kind: Any | None) -> None:
    """Whatever is asked of a worker ends so; None where it answers."""

    def check(task: str, milliseconds: int) -> None:
        if kind is not None:
            raise kind(None, None, "said")

    context = types.SimpleNamespace(check_collective_ops_peer_health=check)
    monkeypatch.setattr(
        worker_collectives, "context", types.SimpleNamespace(context=lambda: context)
    )


@pytest.mark.parametrize(
    ("kind", "lost", "answers"),
    [
        (None, False, True),
        (tf.errors.UnavailableError, True, False),
        (tf.errors.FailedPreconditionError, True, False),  # started anew
        (tf.errors.DeadlineExceededError, False, False),  # slow, or stopped
        (tf.errors.InternalError, False, False),
    ],
)
def test_only_one_that_is_gone_or_was_started_anew_is_lost(
    monkeypatch: pytest.MonkeyPatch, kind: Any, lost: bool, answers: bool
) -> None:
    peers(monkeypatch, kind)
    assert worker_collectives.is_lost("/job:worker/task:1") is lost
    assert worker_collectives.answers("/job:worker/task:1") is answers


def test_a_cause_is_told_in_one_line_without_what_stands_around(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def aborted(**arguments: Any) -> None:
        raise tf.errors.UnavailableError(
            None,
            None,
            "Collective ops is aborted by: task 1\n  is gone\nAdditional GRPC error information: x",
        )

    monkeypatch.setattr(tf.raw_ops, "CollectiveReduceV2", aborted)
    assert worker_collectives.are_given_up(0) == "task 1 is gone"


def test_a_process_whose_collectives_work_has_not_given_them_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys: list[int] = []
    monkeypatch.setattr(
        tf.raw_ops, "CollectiveReduceV2", lambda **given: keys.append(given["group_key"])
    )
    assert worker_collectives.are_given_up(0) is worker_collectives.are_given_up(3) is None
    assert len(set(keys)) == 2  # each worker is a group of its own
