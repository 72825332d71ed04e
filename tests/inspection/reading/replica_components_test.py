"""Steps of several replicas of one process, as saved models have them."""

from __future__ import annotations

import functools
import json
import pathlib
import tempfile

import pytest

from tests.cli.command import python
from tests.inspection.inspect_test import training
from tests.model_files.exported import exported as of_one_device
from tests.project.imports import ROOT
from tests.selection import cases
from tf_wu_shard.inspection.answers.answer import FunctionAnswer
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.reading.replica_components import components
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.model_files.types import ModelVariable
from tf_wu_shard.tensorflow_private import model_protos

EXPANDED, JOINED = "EXPAND_DISTRIBUTED_VARIABLES", "NONE"


@functools.cache
def exported(
    policy: str, across: str, optimizer: str
) -> tuple[pathlib.Path, dict[str, tuple[str, int]]]:
    """A saved model, and how the pass shards the same step."""
    folder = pathlib.Path(tempfile.mkdtemp())
    arguments = (str(folder), policy, across, optimizer)
    done = python("-m", "tests.inspection.mirrored_step", *arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return folder, {name: (layout, slots) for name, (layout, slots) in found.items()}


def answer(policy: str, across: str, optimizer: str, question: Question) -> FunctionAnswer:
    """What is said of the step."""
    model = read_model(exported(policy, across, optimizer)[0])
    (found,) = (f for f in inspect(model, question).functions if f.trains and not f.trained_by)
    return found


@pytest.mark.parametrize(
    ("across", "optimizer"),
    cases(
        [("one_device", "Adam"), ("one_device", "SGD"), ("copies", "Adam")],
        {("one_device", "Adam"), ("copies", "Adam")},
    ),
)
def test_a_step_whose_components_are_kept_is_sharded_as_the_pass_does(
    across: str, optimizer: str
) -> None:
    found = answer(EXPANDED, across, optimizer, Question())
    assert found.verdict == f"trains: sums {found.reductions} gradients over 2 replicas"
    assert not found.assumed and found.report is not None and found.report.num_replicas == 2
    planned = {v.name: (v.layout, len(v.slots)) for v in found.report.variables}
    assert planned == exported(EXPANDED, across, optimizer)[1] != {}


def test_its_optimizer_is_recognised_in_one_of_the_copies() -> None:
    found = answer(EXPANDED, "one_device", "Adam", Question(replicas=4))
    assert [u.optimizer for u in found.updates] == ["adam-like"] * 4
    assert found.report is not None and found.report.variables[0].layout == "flat 1024/4"


def test_its_rewrite_is_compared_with_it_as_it_was_traced() -> None:
    diff = answer(EXPANDED, "one_device", "Adam", Question(replicas=4, diff=True)).diff
    assert diff is not None and not diff.refusal and diff.added and diff.removed
    assert diff.about.startswith("the step as it was traced, for 2 replicas")


@pytest.mark.parametrize("optimizer", cases(["Adam", "SGD"], {"Adam"}))
def test_copies_whose_variables_are_joined_are_left_alone(optimizer: str) -> None:
    """The file has every replica write the same variable: neither one step nor two."""
    found = answer(JOINED, "one_device", optimizer, Question())
    assert found.trains and found.report is None and not found.updates
    assert "EXPAND_DISTRIBUTED_VARIABLES" in found.verdict


DEVICES = ("/device:CPU:0", "/device:CPU:1")


def told(*ops: tuple[str, str, str]) -> dict[str, int]:
    """What components two handles of `w` are, given type, device and handle of ops."""
    nodes = []
    for number, (op, device, handle) in enumerate(ops):
        nodes.append(model_protos.graph_def().node.add(name=str(number), op=op, device=device))
        nodes[-1].input.append(handle)
    variable = ModelVariable("w", (4,), 1, True, DEVICES)
    return components(nodes, {"a": variable, "b": variable})


def test_the_place_of_a_write_tells_the_component() -> None:
    writes = [("AssignVariableOp", DEVICES[1], "a"), ("AssignVariableOp", DEVICES[0], "b")]
    reads = [("ReadVariableOp", "", "a"), ("ReadVariableOp", "", "b")]
    assert told(*reads, *writes) == {"a": 1, "b": 0}


def test_components_that_are_only_read_are_taken_in_their_order() -> None:
    assert told(("ReadVariableOp", "", "a"), ("ReadVariableOp", "", "b")) == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    "ops",
    [
        [("AssignVariableOp", "", "a"), ("AssignVariableOp", DEVICES[0], "b")],
        [("AssignVariableOp", DEVICES[0], "a"), ("AssignVariableOp", DEVICES[0], "b")],
        [("AssignVariableOp", "/device:CPU:7", "a"), ("ReadVariableOp", "", "b")],
        [("AssignVariableOp", DEVICES[0], "a"), ("ReadVariableOp", DEVICES[1], "a")],
    ],
)
def test_places_that_contradict_each_other_tell_nothing(ops: list[tuple[str, str, str]]) -> None:
    assert told(*ops) == {}


def test_a_step_of_one_device_has_no_components() -> None:
    model = read_model(of_one_device())
    assert not any(variable.devices for variable in model.variables.values())
    assert training(inspect(model, Question())).assumed
