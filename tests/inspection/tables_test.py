"""Inspection says of a step of one device that trains embeddings what the pass does on replicas."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.command import python
from tests.inspection.inspect_test import training
from tests.inspection.tables import CASES, REPLICAS
from tests.project.imports import ROOT
from tf_wu_shard.inspection.answers.answer import FunctionAnswer
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.topology import parse_topology

IN_PROCESS = Question(replicas=REPLICAS)
ON_TPU = Question(topology=parse_topology("v5e:2x2"))

# One of each kind of update, and of each use of a table; and what proves their optimizers to be.
QUICK = {
    "once-sgd": "sgd-like",
    "once-momentum_clipped": "momentum-like",
    "once-v1_momentum": "Momentum",
    "twice-adam": "adam-like",
    "two_tables-adagrad": "adagrad-like",
    "tied-adam": "adam-like",
}
QUICK_ON_TPU = ["once-v1_momentum", "tied-adam"]
# TPUStrategy runs no optimizer of tf_keras' that is not built for it.
ON_TPUS = [case for case in CASES if "tf_keras" not in case]

Ran = Callable[[str, list[str]], tuple[dict[str, Any], pathlib.Path]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The reports of some cases on a ground, and the folder of their SavedModels."""

    def run(ground: str, cases: list[str]) -> tuple[dict[str, Any], pathlib.Path]:
        folder = tmp_path_factory.mktemp(ground)
        done = python("-m", "tests.inspection.tables", ground, str(folder), *cases, cwd=ROOT)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1]), folder

    return run


def agrees(live: dict[str, Any], found: FunctionAnswer) -> None:
    """Checks that the same is sharded, in the same way, and that as much travels."""
    report = found.report
    assert report is not None
    said = json.loads(report.to_json())
    # Slots are called otherwise where there are several components.
    for one in (live, said):
        for variable in one["variables"]:
            variable["slots"] = sorted(slot.rpartition("/")[2] for slot in variable["slots"])
    keys = ("name", "shape", "dtype", "layout", "slots", "padding", "whole")
    cut, own = (
        sorted([variable[key] for key in keys] for variable in one["variables"])
        for one in (live, said)
    )
    assert own == cut
    left, kept = (
        {variable["name"]: variable["reason"] for variable in one["left_alone"]}
        for one in (live, said)
    )
    assert kept == left
    for key in ("wire_bytes", "slot_bytes_per_replica", "weight_bytes_per_replica"):
        assert said[key] == live[key], key


def every_one_agrees(
    live: dict[str, Any], folder: pathlib.Path, question: Question
) -> dict[str, FunctionAnswer]:
    found = {c: training(inspect(read_model(folder / c), question)) for c in live}
    for case, report in live.items():
        agrees(report, found[case])
    return found


def test_in_one_process_the_pass_does_what_was_said(ran: Ran) -> None:
    found = every_one_agrees(*ran("mirrored", list(QUICK)), IN_PROCESS)
    for case, answer in found.items():
        assert {u.optimizer for u in answer.updates} == {QUICK[case]}, case
        tables = [u for u in answer.updates if u.variable.endswith("embeddings")]
        sparse = not case.startswith("tied") and "clipped" not in case
        assert {"the gradient is sparse" in u.because for u in tables} == {sparse}, case
        # Values and rows of one gradient count once.
        assert answer.assumed == len(answer.updates)


def test_on_tpus_the_pass_does_what_was_said(ran: Ran) -> None:
    every_one_agrees(*ran("tpu", QUICK_ON_TPU), ON_TPU)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ground", "cases", "question"),
    [("mirrored", CASES, IN_PROCESS), ("tpu", ON_TPUS, ON_TPU)],
    ids=("in one process", "on TPUs"),
)
def test_so_it_does_with_every_optimizer(
    ran: Ran, ground: str, cases: list[str], question: Question
) -> None:
    every_one_agrees(*ran(ground, cases), question)
