"""Which dialect replicas of one process have, and what is said of GPUs."""

from __future__ import annotations

import types
from typing import Any

import pytest
import tensorflow as tf  # noqa: F401  sets the package up
from absl import logging

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.grounds.collective.collectives import Collectives
from tf_wu_shard.grounds.collective.workers import WorkerCollectives
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.step import replicas as step_replicas
from tf_wu_shard.step.replicas import dialect_of, in_process_dialect


def devices_of(kind: str) -> tuple[str, str]:
    first, second = (f"/job:localhost/replica:0/task:0/device:{kind}:{n}" for n in range(2))
    return first, second


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(logging, "log_first_n", lambda level, text, count: lines.append(text))
    return lines


@pytest.mark.parametrize(("kind", "warned"), [("GPU", True), ("CPU", False)])
def test_a_log_line_says_that_no_gpu_has_run_it(logged: list[str], kind: str, warned: bool) -> None:
    in_process_dialect(in_this_process(devices_of(kind)))
    assert ["on GPUs it has not been run" in line for line in logged] == [True] * warned


@pytest.mark.parametrize(("kind", "warned"), [("GPU", True), ("CPU", False)])
def test_workers_with_gpus_are_told_so_too(
    monkeypatch: pytest.MonkeyPatch, logged: list[str], kind: str, warned: bool
) -> None:
    monkeypatch.setattr(step_replicas, "workers_of", lambda captured: types.SimpleNamespace(rank=0))
    here = in_this_process(devices_of(kind))
    monkeypatch.setattr(step_replicas, "replicas_in", lambda view: here)
    captured: Any = types.SimpleNamespace(cluster=None, view=None)
    assert type(dialect_of(captured, ShardingOptions())) is WorkerCollectives
    assert ["on GPUs it has not been run" in line for line in logged] == [True] * warned


@pytest.mark.parametrize(
    ("devices", "name", "made"),
    [
        (devices_of("CPU"), "auto", InProcess),
        (devices_of("CPU"), "collective", Collectives),
        (devices_of("GPU"), "auto", Collectives),
        ((devices_of("CPU")[0], devices_of("GPU")[1]), "auto", InProcess),
        ((), "auto", InProcess),
    ],
)
def test_gpus_exchange_by_collectives_and_cpus_over_edges(
    devices: tuple[str, ...], name: str, made: type
) -> None:
    assert type(in_process_dialect(in_this_process(devices), name)) is made
