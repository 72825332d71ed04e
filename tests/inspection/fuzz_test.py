"""Whatever a file holds, it is answered in words: no traceback, no hang, no control characters."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.inspection.mutations import damaged
from tests.inspection.tables import export
from tests.model_files.exported import Step, exported, save, save_step
from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.inspection.formats.json_text import as_json
from tf_wu_shard.inspection.formats.text import as_lines
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model

# A whole model takes a hundredth of that.
_SECONDS_EACH = 5.0


def answer_of(data: bytes, folder: pathlib.Path) -> str:
    """What is said of a SavedModel's bytes."""
    (folder / "saved_model.pb").write_bytes(data)
    try:
        inspection = inspect(read_model(folder), Question(replicas=2, diff=True))
    except ModelFileError as error:
        return str(error)
    assert as_json(inspection).isascii()
    return as_lines(inspection)


def survives(data: bytes, count: int, seed: int, folder: pathlib.Path) -> None:
    for number, changed in enumerate(damaged(data, count, seed)):
        start = time.perf_counter()
        said = answer_of(changed, folder)
        assert said and said.replace("\n", "").isprintable(), number
        assert "Error)" not in said, (number, said)
        assert time.perf_counter() - start < _SECONDS_EACH, number


@pytest.mark.slow
def test_500_damaged_models_are_answered(tmp_path: pathlib.Path) -> None:
    survives((exported() / "saved_model.pb").read_bytes(), 500, 1, tmp_path)


def test_200_damaged_models_with_tables_are_answered(tmp_path: pathlib.Path) -> None:
    survives(
        (export(tmp_path, "two_tables-adagrad") / "saved_model.pb").read_bytes(), 200, 3, tmp_path
    )


class InALoop(tf.Module):
    """Steps that only apply gradients where they are finite, in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.step = Step(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()))

    @tf.function(input_signature=[tf.TensorSpec((3, 8, 16)), tf.TensorSpec((3, 8), tf.int32)])
    def train(self, x: Any, y: Any) -> None:
        """Three steps."""
        for turn in tf.range(3):
            self.step.train(x[turn], y[turn])


def in_branches(kind: str, folder: pathlib.Path) -> bytes:
    """A SavedModel whose updates stand in branches, and in a loop."""
    if kind == "loop":
        save(InALoop(), folder, {})
    else:
        save_step(Step(keras.optimizers.Adam(gradient_accumulation_steps=2)), folder)
    return (folder / "saved_model.pb").read_bytes()


@pytest.mark.parametrize("kind", ["loop", "accumulated"])
def test_200_damaged_models_with_branches_are_answered(tmp_path: pathlib.Path, kind: str) -> None:
    survives(in_branches(kind, tmp_path), 100, 5, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loop", "accumulated"])
def test_4_000_damaged_models_with_branches_are_answered(tmp_path: pathlib.Path, kind: str) -> None:
    survives(in_branches(kind, tmp_path), 2000, 6, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["once-adam", "once-v1_momentum", "two_tables-momentum"])
def test_2_000_damaged_models_with_tables_are_answered(tmp_path: pathlib.Path, case: str) -> None:
    survives((export(tmp_path, case) / "saved_model.pb").read_bytes(), 2000, 4, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "adadelta", "muon", "adafactor", None])
def test_10_000_damaged_models_are_answered(tmp_path: pathlib.Path, optimizer: str | None) -> None:
    survives((exported(optimizer) / "saved_model.pb").read_bytes(), 2000, 2, tmp_path)
