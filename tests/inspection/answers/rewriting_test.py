"""The rewrite of a step out of a file is the one that a traced step gets, and runs nothing."""

from __future__ import annotations

import pathlib
import re

from tests.cli.command import python
from tests.inspection.inspect_test import training
from tests.model_files.exported import exported
from tests.project.imports import ROOT
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.inspection.answers.graph_diff import GraphDiff
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.topology import parse_topology


def diff_of(path: pathlib.Path, question: Question) -> GraphDiff:
    inspection = inspect(read_model(path), question)
    assert not inspection.notes
    found = training(inspection).diff
    assert found is not None and not found.refusal
    return found


def types(diff: GraphDiff, mark: str) -> list[str]:
    return [m[1] for line in diff.lines if (m := re.match(rf"\{mark}\S+ = (\w+)\(", line))]


def test_a_step_of_one_device_is_shown_with_the_sums_that_it_would_have() -> None:
    diff = diff_of(exported(), Question(replicas=4, diff=True))
    assert diff.about.startswith("the step as one program of 4 replicas on a TPU")
    # One of four gradients is of a weight that is large enough.
    assert types(diff, "+").count("XlaReduceScatter") == 1
    assert types(diff, "-").count("CrossReplicaSum") == 1
    assert "# handle of a shard of adam/sequential_hidden_kernel_momentum" in "\n".join(diff.lines)
    new = [line for line in diff.lines if line.startswith("+") and " = XlaReduceScatter(" in line]
    assert new[0].endswith("# [1,8,64] float32")


def test_the_options_and_the_slice_are_those_asked_for() -> None:
    slice_ = parse_topology("v5e:2x2")
    nothing = diff_of(exported(), Question(topology=slice_, diff=True))
    # A TPU shares what has 1024 elements a replica; the largest weight has 1024.
    assert nothing.about.endswith("nothing is sharded, so that nothing changes")
    assert not nothing.lines
    all_of_it = Question(topology=slice_, options=ShardingOptions(min_elements=8), diff=True)
    diff = diff_of(exported(), all_of_it)
    assert types(diff, "-").count("CrossReplicaSum") > 1
    # Along both axes of the torus.
    assert types(diff, "+").count("XlaReduceScatter") % 2 == 0


def test_without_the_question_nothing_is_compared() -> None:
    assert training(inspect(read_model(exported()), Question())).diff is None


def test_a_tpu_program_is_shown_as_it_was_traced(tmp_path: pathlib.Path) -> None:
    done = python("-m", "tests.inspection.tpu_step", str(tmp_path), "2", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    options = ShardingOptions(min_elements=8)
    diff = diff_of(tmp_path, Question(replicas=8, options=options, diff=True))
    assert diff.about == "the step as it was traced, for 2 replicas, and as rewritten"
    assert "XlaReduceScatter" in types(diff, "+") and diff.removed and diff.changed
