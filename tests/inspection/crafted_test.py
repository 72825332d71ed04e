"""Small files that would be endless work: each is answered in a time that its size explains."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.inspection.large_models import FunctionWriter
from tf_wu_shard.inspection.answers.answer import FunctionAnswer
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.tensorflow_private import model_protos

_FLOAT, _RESOURCE = 1, 20

# An op takes less than a millisecond on one core; other tests may be running, and what is quadratic
# takes minutes.
_SECONDS = 30.0


def function(library: Any, name: str, variables: int) -> FunctionWriter:
    """A function of a batch and some variables, w0 and so on."""
    made = library.function.add()
    made.signature.name = name
    made.signature.input_arg.add(name="batch", type=_FLOAT)
    for number in range(variables):
        made.signature.input_arg.add(name=f"w{number}", type=_RESOURCE)
    return FunctionWriter(made)


def calls_of_calls(library: Any) -> None:
    """Writes a weight 2^40 times: each function calls the next one twice."""
    for level in range(39):
        caller = function(library, f"f{level}", 1)
        for number in range(2):
            caller.call(f"call{number}", f"f{level + 1}", "batch", "w0")
    last = function(library, "f39", 1)
    last.op("AssignSubVariableOp", "put", "w0", "batch")


def writes_in_a_row(library: Any) -> None:
    step = function(library, "step", 1)
    read = step.op("ReadVariableOp", "read", "w0")
    gradient = step.op("MatMul", "gradient", "batch", read)
    before = "^read"
    for number in range(8000):
        moved = step.op("Tanh", f"moved{number}", gradient)
        before = step.op("AssignSubVariableOp", f"put{number}", "w0", moved, before)


def unordered_writes(library: Any) -> None:
    step = function(library, "step", 1)
    read = step.op("ReadVariableOp", "read", "w0")
    gradient = step.op("MatMul", "gradient", "batch", read)
    for number in range(8000):
        moved = step.op("Tanh", f"moved{number}", gradient)
        step.op("AssignSubVariableOp", f"put{number}", "w0", moved, "^read")


def reads_in_a_row(library: Any) -> None:
    step, value = function(library, "step", 1), "batch"
    for number in range(8000):
        read = step.op("ReadVariableOp", f"read{number}", "w0")
        value = step.op("MatMul", f"layer{number}", value, read)
    step.op("AssignSubVariableOp", "put", "w0", value)


def weights_of_one_gradient(library: Any) -> None:
    step, value = function(library, "step", 2000), "batch"
    for number in range(2000):
        read = step.op("ReadVariableOp", f"read{number}", f"w{number}")
        value = step.op("MatMul", f"layer{number}", value, read)
    for number in range(2000):
        step.op("AssignSubVariableOp", f"put{number}", f"w{number}", value, f"^read{number}")


def states_in_a_row(library: Any) -> None:
    """An update that goes through 2000 variables, each of which the next one depends on."""
    step = function(library, "step", 2000)
    read = step.op("ReadVariableOp", "read0", "w0")
    value = step.op("MatMul", "gradient", "batch", read)
    for number in range(1, 2000):
        read = step.op("ReadVariableOp", f"read{number}", f"w{number}")
        value = step.op("AddV2", f"sum{number}", value, read)
        step.op("AssignVariableOp", f"put{number}", f"w{number}", value, f"^read{number}")
    step.op("AssignSubVariableOp", "put0", "w0", value, "^read0")


def answer_to(write: Callable[[Any], None], folder: pathlib.Path) -> FunctionAnswer:
    """What is said of the first function of a library."""
    library = model_protos.function_library()
    write(library)
    (folder / "library.pb").write_bytes(library.SerializeToString())
    start = time.perf_counter()
    found = inspect(read_model(folder / "library.pb"), Question(replicas=2)).functions[0]
    assert time.perf_counter() - start < _SECONDS
    return found


def test_calls_that_would_be_written_out_2_to_the_40_times_are_not(tmp_path: pathlib.Path) -> None:
    found = answer_to(calls_of_calls, tmp_path)
    assert found.refusal == (
        "with all calls written out it has more than 10000 ops, and the file has 79"
    )


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (writes_in_a_row, {""}),
        (unordered_writes, {"nothing orders it after put0, which uses w0 too"}),
        (reads_in_a_row, {""}),
        (weights_of_one_gradient, {""}),
        (states_in_a_row, {"it depends on more than 64 variables of the step"}),
    ],
)
def test_what_makes_an_analysis_quadratic_comes_to_an_end(
    tmp_path: pathlib.Path, write: Callable[[Any], None], said: set[str]
) -> None:
    found = answer_to(write, tmp_path)
    assert found.trains and found.report is not None
    assert {left.reason for left in found.report.left_alone} <= said
    assert bool(found.updates) == (said == {""})
