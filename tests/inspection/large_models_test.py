"""Large models are inspected in the time and memory of large models."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tests.inspection.large_models import write_large_model
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model

_MEASURED = """
import resource, sys
from tf_wu_shard.bench.resident_memory import peak_bytes
from tf_wu_shard.cli.main import main
status = main(["inspect", sys.argv[1]])
used = resource.getrusage(resource.RUSAGE_SELF)
print("peak", peak_bytes())
print("seconds", used.ru_utime + used.ru_stime)
sys.exit(status)
"""


@pytest.mark.parametrize("in_a_branch", [False, True])
def test_a_written_model_is_recognised(tmp_path: pathlib.Path, in_a_branch: bool) -> None:
    write_large_model(tmp_path, 3, 40, in_a_branch=in_a_branch)
    (found,) = inspect(read_model(tmp_path), Question(replicas=2)).functions
    assert [(u.optimizer, len(u.slots)) for u in found.updates] == [("adam-like", 2)] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("in_a_branch", "seconds", "peak"), [(False, 20, 2e9), (True, 35, 2.2e9)])
def test_5000_variables_and_200000_nodes_take_20_seconds_and_2_gigabytes(
    tmp_path: pathlib.Path, in_a_branch: bool, seconds: float, peak: float
) -> None:
    # Updates in a branch take more, as they are read there and again where they are written out.
    write_large_model(tmp_path, 1667, 122, in_a_branch=in_a_branch)
    command = [sys.executable, "-c", _MEASURED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "SavedModel, 5001 variables: 1 function trains" in done.stdout
    assert "1667 updates: adam-like" in done.stdout
    used = dict(line.split() for line in done.stdout.splitlines()[-2:])
    assert float(used["peak"]) < peak
    # Of the processor, as other tests may be running; loading TensorFlow is part of it.
    assert float(used["seconds"]) < seconds
