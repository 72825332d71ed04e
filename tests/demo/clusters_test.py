"""Claims about demo/clusters.py: a run's figures are those of all workers together."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from tests.demo.samples import BASELINE
from tf_wu_shard.bench import local_cluster, loopback
from tf_wu_shard.bench.conversation import WorkerError
from tf_wu_shard.demo import clusters, runs, under_way
from tf_wu_shard.demo.processes import Trainer
from tf_wu_shard.demo.runs import ClusterFigures, DemoError, Mode, Tensors

# Of two workers and three steps.
_LOSSES = [(2.0, 1.0), (1.5, 0.5), (0.25, 0.0)]
_SECONDS = [(9.0, 8.0), (0.5, 0.25), (0.25, 0.75)]

_TENSORS = Tensors({"kernel": np.arange(3.0)}, {"m": np.zeros(3)})


class _Cluster:
    """Answers as two workers would, and counts a thousand bytes for each step."""

    def __init__(self) -> None:
        self.step = 0
        self.killed = False

    def ask(self, command: str, **arguments: Any) -> list[Any]:
        if command == "step":
            self.step += 1
            losses, seconds = _LOSSES[self.step - 1], _SECONDS[self.step - 1]
            return [
                {"loss": loss, "seconds": taken}
                for loss, taken in zip(losses, seconds, strict=True)
            ]
        answers: dict[str, list[Any]] = {
            "build": [{"steps": 3, "parameters": 18}] * 2,
            "votes": [[(0.0, 4.5), (5.0, 5.25)], [(4.0, 4.5), (5.0, 5.5)]],
            "figures": [
                {"digest": "ab", "peak_bytes": 10},
                {"digest": "cd", "peak_bytes": 20},
            ],
        }
        return answers[command]

    def ask_one(self, index: int, command: str, folder: str, measured: dict[str, Any]) -> None:
        assert (index, command) == (0, "save")
        cluster = ClusterFigures(**measured["cluster"])
        run = dataclasses.replace(BASELINE, **measured | {"cluster": cluster})
        runs.save(pathlib.Path(folder), run, _TENSORS)

    def kill(self) -> None:
        self.killed = True


Running = Callable[[int, str, Mapping[str, str]], contextlib.AbstractContextManager[Any]]


def _running(cluster: Any) -> Running:
    @contextlib.contextmanager
    def running(count: int, module: str, environment: Mapping[str, str]) -> Iterator[Any]:
        yield cluster

    return running


def test_a_step_has_the_sum_of_the_losses_and_the_time_of_the_slowest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    cluster = _Cluster()
    monkeypatch.setattr(local_cluster, "running", _running(cluster))
    monkeypatch.setattr(loopback, "received_bytes", lambda: 1000 * cluster.step)
    said: list[dict[str, float]] = []
    trained, tensors = clusters.train(
        "workers_language_model",
        Mode.SHARDED,
        workers=2,
        quick=True,
        folder=tmp_path,
        environment={},
        progress=said.append,
    )
    assert trained.losses == (3.0, 2.0, 0.25)
    assert (trained.first_step_s, trained.step_s) == (9.0, (0.5, 0.75))
    assert trained.peak_bytes == 20
    # A second after the last worker came to each vote, and of bytes those of two steps.
    assert trained.cluster == ClusterFigures(("ab", "cd"), 1000.0, 1.0)
    assert tensors.weights.keys() == {"kernel"}
    assert said[0]["steps"] == 3
    assert [message["loss"] for message in said[1:]] == [3.0, 2.0, 0.25]


def test_a_cluster_under_way_can_be_ended_by_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    class Ended(_Cluster):
        def ask(self, command: str, **arguments: Any) -> list[Any]:
            under_way.end_all()
            raise WorkerError(f"worker 1: the process ended; killed: {self.killed}")

    monkeypatch.setattr(local_cluster, "running", _running(Ended()))
    with pytest.raises(DemoError, match=r"^the sharded run of workers_.*: worker 1.*killed: True"):
        Trainer(8, True, tmp_path).train("workers_language_model", Mode.SHARDED, lambda *_: None)


def test_workers_are_four_or_two_when_it_is_to_be_quick(tmp_path: pathlib.Path) -> None:
    slow, quick = Trainer(8, False, tmp_path), Trainer(8, True, tmp_path)
    assert slow.replicas_of("workers_language_model") == 4
    assert quick.replicas_of("workers_language_model") == 2
    assert quick.replicas_of("digits") == 8
