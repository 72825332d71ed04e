"""All workers of a cluster are asked at once, and one that fails ends the wait for the others."""

from __future__ import annotations

import pathlib
import time

import pytest

from tf_wu_shard.bench import local_cluster
from tf_wu_shard.bench.conversation import WorkerError

SERVE = """
import json, os, time
from tf_wu_shard.bench.conversation import Channel

channel = Channel()
task = json.loads(os.environ["TF_CONFIG"])
index = task["task"]["index"]
while (asked := channel.command()) is not None:
    if asked["command"] == "break" and index == 1:
        channel.fail(ValueError("broken"))
    elif asked["command"] == "break":
        time.sleep(600)
    else:
        channel.answer([index, task["cluster"]["worker"], asked["number"], os.environ["GIVEN"]])
"""


@pytest.fixture
def module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "serve_a_cluster.py").write_text(SERVE)
    monkeypatch.chdir(tmp_path)
    return "serve_a_cluster"


def test_each_worker_has_its_index_and_all_have_one_cluster(module: str) -> None:
    with local_cluster.running(3, module, {"GIVEN": "something"}) as workers:
        answers = workers.ask("whatever", number=7)
        addresses = answers[0][1]
        assert len(set(addresses)) == 3
        assert answers == [[index, addresses, 7, "something"] for index in range(3)]
        assert workers.ask_one(2, "whatever", number=8) == [2, addresses, 8, "something"]


def test_the_error_is_that_of_the_worker_that_failed_and_nobody_waits_for_the_rest(
    module: str,
) -> None:
    began = time.monotonic()
    with (
        local_cluster.running(3, module) as workers,
        pytest.raises(WorkerError, match=r"^worker 1: break failed: ValueError: broken$"),
    ):
        workers.ask("break")
    assert time.monotonic() - began < 300
