"""Claims about the picture of a real update: it is what the graph and the plan say."""

from __future__ import annotations

import collections
import json

from tests.inspection.inspect_test import training
from tests.model_files.exported import exported
from tf_wu_shard.inspection.answers.answer import UpdatePicture
from tf_wu_shard.inspection.formats.json_text import as_json
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model


def drawn(optimizer: str = "adam") -> UpdatePicture:
    found = training(inspect(read_model(exported(optimizer)), Question(replicas=4))).picture
    assert found is not None
    return found


def test_adam_is_its_ops_as_the_graph_has_them() -> None:
    picture = drawn()
    assert picture.variable == "sequential/hidden/kernel" and picture.replicas == 4
    counted = collections.Counter(op.type for op in picture.ops)
    assert counted == {
        **{"ReadVariableOp": 4, "Sub": 2, "Mul": 3, "AssignAddVariableOp": 2, "Square": 1},
        **{"Sqrt": 1, "AddV2": 1, "RealDiv": 1, "AssignSubVariableOp": 1},
    }
    slots = ["momentum", "velocity", "kernel"]
    assert [op.writes_for.rpartition("_")[2] for op in picture.ops if op.writes][:2] == slots[:2]


def test_each_op_comes_after_all_that_it_reads() -> None:
    for position, op in enumerate(drawn().ops):
        assert all(read < position for read in op.reads)
        assert op.follows is None or op.follows < position


def test_what_is_read_after_a_write_follows_it() -> None:
    ops = drawn().ops
    following = [(ops[op.follows].variable, op.variable) for op in ops if op.follows is not None]
    assert len(following) == 2 and all(written == read for written, read in following)


def test_shapes_and_bytes_are_those_of_the_plan() -> None:
    picture = drawn()
    assert (picture.weight.shape, picture.weight.bytes) == ((16, 64), 4096)
    assert (picture.weight_shard.shape, picture.weight_shard.bytes) == ((256,), 1024)
    (gradient,) = picture.gradients
    assert gradient.whole == picture.weight and gradient.shard == picture.weight_shard
    assert {op.whole for op in picture.ops} == {picture.weight}
    assert {op.shard for op in picture.ops} == {picture.weight_shard}


def test_the_slots_stay_in_shards_and_the_weight_does_not() -> None:
    picture = drawn()
    assert len(picture.in_shards) == 2 and not picture.weight_in_shards


def test_an_update_without_slots_is_drawn_too() -> None:
    picture = drawn("sgd")
    (write,) = picture.ops
    assert write.writes and write.gradients == (0,) and picture.in_shards == ()


def test_nothing_planned_is_nothing_drawn() -> None:
    found = inspect(read_model(exported()), Question(replicas=4096))
    assert all(f.picture is None for f in found.functions if f.report is None)


def test_json_has_it() -> None:
    inspection = inspect(read_model(exported()), Question(replicas=4))
    (picture,) = json.loads(as_json(inspection))["pictures"]
    assert picture["gradients"][0]["shard"] == {"shape": [256], "dtype": "float32", "bytes": 1024}
