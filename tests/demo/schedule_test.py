"""Claims about demo/schedule.py: real runs can be compared, and nothing outlives a failure."""

from __future__ import annotations

import pathlib
import threading
import time
from typing import Any

import numpy as np
import pytest

from tf_wu_shard.demo import processes, schedule
from tf_wu_shard.demo.processes import Trainer
from tf_wu_shard.demo.runs import DemoError, Mode, Run, Tensors


@pytest.mark.slow
def test_real_runs_of_the_digits_agree_and_are_sharded(tmp_path: pathlib.Path) -> None:
    said: dict[Mode, list[dict[str, float]]] = {mode: [] for mode in Mode}

    def note(task: str, mode: Mode, message: dict[str, float]) -> None:
        said[mode].append(message)

    [compared], aside = schedule.train_all(
        ["digits"],
        Trainer(2, True, tmp_path),
        progress=note,
        quiet_progress=note,
        beside=lambda: "done",
    )
    assert aside == "done"
    assert compared.problems == ()
    # Two numbers have one sum in either order.
    assert [one.difference for one in compared.agreements] == [0.0, 0.0, 0.0]
    assert compared.sharded.losses[-1] < compared.sharded.losses[0]
    for mode in Mode:
        steps = int(said[mode][0]["steps"])
        assert [message["step"] for message in said[mode][1:]] == list(range(1, steps + 1))
    np.testing.assert_array_equal(
        compared.sharded.losses, [message["loss"] for message in said[Mode.SHARDED][1:]]
    )


def test_what_is_timed_runs_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    alone = threading.Lock()
    modes: list[tuple[str, Mode]] = []

    def train(self: Trainer, task: str, mode: Mode, _: object) -> tuple[Run, Tensors]:
        if mode is not Mode.REORDERED:
            assert alone.acquire(blocking=False), "something runs beside a timed run"
            alone.release()
        modes.append((task, mode))
        return task, mode  # type: ignore[return-value]

    def beside() -> None:
        with alone:
            time.sleep(0.05)

    monkeypatch.setattr(Trainer, "train", train)
    monkeypatch.setattr(schedule, "compare", lambda task, replicas, trained: (task, trained))
    compared, _ = schedule.train_all(
        ["a", "b"],
        Trainer(2, True, tmp_path),
        progress=lambda *_: None,
        quiet_progress=lambda *_: None,
        beside=beside,
    )
    timed = [(task, mode) for task in "ab" for mode in (Mode.UNSHARDED, Mode.SHARDED)]
    assert modes[:4] == timed
    assert sorted(modes[4:]) == [("a", Mode.REORDERED), ("b", Mode.REORDERED)]
    expected: list[Any] = [(task, {mode: (task, mode) for mode in Mode}) for task in "ab"]
    assert compared == expected


def test_when_one_thing_fails_the_runs_beside_it_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    begun = threading.Event()

    def train(self: Trainer, task: str, mode: Mode, _: object) -> None:
        if mode is Mode.REORDERED:
            process = ["python3", "-c", "import time; print('{}', flush=True); time.sleep(600)"]
            with (tmp_path / "log").open("w") as errors:
                processes._run(process, errors, lambda message: begun.set())
            raise DemoError("ended")

    def beside() -> None:
        assert begun.wait(60)
        raise OSError("no room")

    monkeypatch.setattr(Trainer, "train", train)
    start = time.monotonic()
    with pytest.raises(OSError, match="no room"):
        schedule.train_all(
            ["a"],
            Trainer(2, True, tmp_path),
            progress=lambda *_: None,
            quiet_progress=lambda *_: None,
            beside=beside,
        )
    assert time.monotonic() - start < 600
