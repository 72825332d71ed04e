"""The linter refuses private TensorFlow everywhere but in the one folder made for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.project.imports import ROOT

FORMS = (
    "from tensorflow.python.eager import context\n\ncontext.context()\n",
    "import tensorflow.python.eager.context as c\n\nc.context()\n",
    "from tensorflow.core.framework import graph_pb2\n\ngraph_pb2.GraphDef()\n",
)


def _findings(source: str, file: str) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--select",
            "TID251",
            "--stdin-filename",
            file,
            "-",
        ],
        cwd=ROOT,
        input=source,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.mark.parametrize("source", FORMS)
def test_private_tensorflow_is_refused_outside_its_folder(source: str) -> None:
    assert "TID251" in _findings(source, "tf_wu_shard/weight_update/plan/planner.py")
    assert "TID251" in _findings(source, "models/mlp.py")
    assert "TID251" in _findings(source, "tests/weight_update/plan/planner_test.py")


@pytest.mark.parametrize("source", FORMS)
def test_private_tensorflow_is_let_into_its_folder(source: str) -> None:
    assert "TID251" not in _findings(source, "tf_wu_shard/tensorflow_private/hook.py")
