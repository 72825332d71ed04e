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

_INSPECTED = """
import resource, sys
from tf_wu_shard.bench.resident_memory import peak_bytes
from tf_wu_shard.cli.main import main
status = main(["inspect", sys.argv[1]])
used = resource.getrusage(resource.RUSAGE_SELF)
print("peak", peak_bytes())
print("seconds", used.ru_utime + used.ru_stime)
sys.exit(status)
"""

# What TensorFlow itself takes to read the functions of such a model: a measure of the machine.
_IMPORTED = """
import resource, sys
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
with open(sys.argv[1] + "/saved_model.pb", "rb") as file:
    graph_def = SavedModel.FromString(file.read()).meta_graphs[0].graph_def
with tf.Graph().as_default():
    tf.import_graph_def(graph_def, name="")
    for function in graph_def.library.function:
        function_def_to_graph(function)
used = resource.getrusage(resource.RUSAGE_SELF)
print("seconds", used.ru_utime + used.ru_stime)
"""


@pytest.mark.parametrize("in_a_branch", [False, True])
def test_a_written_model_is_recognised(tmp_path: pathlib.Path, in_a_branch: bool) -> None:
    write_large_model(tmp_path, 3, 40, in_a_branch=in_a_branch)
    (found,) = inspect(read_model(tmp_path), Question(replicas=2)).functions
    assert [(u.optimizer, len(u.slots)) for u in found.updates] == [("adam-like", 2)] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("in_a_branch", "times", "peak"), [(False, 1.5, 2e9), (True, 2.5, 2.2e9)])
def test_5000_variables_and_200000_nodes_take_the_time_of_their_import_and_2_gigabytes(
    tmp_path: pathlib.Path, in_a_branch: bool, times: float, peak: float
) -> None:
    # Updates in a branch take more, as they are read there and again where they are written out.
    write_large_model(tmp_path, 1667, 122, in_a_branch=in_a_branch)
    inspected, printed = _run(_INSPECTED, tmp_path)
    assert "SavedModel, 5001 variables: 1 function trains" in printed
    assert "1667 updates: adam-like" in printed
    assert inspected["peak"] < peak
    imported, _ = _run(_IMPORTED, tmp_path)
    assert inspected["seconds"] < times * imported["seconds"]


def _run(program: str, folder: pathlib.Path) -> tuple[dict[str, float], str]:
    """Runs a program on a folder; its last lines as names and numbers, and all that it printed.

    Seconds are of the processor, as other tests may be running; loading TensorFlow is part of them.
    """
    command = [sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()[-2:]]
    return {line[0]: float(line[1]) for line in lines if len(line) == 2}, done.stdout
