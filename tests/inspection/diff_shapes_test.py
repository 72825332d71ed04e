"""The shapes shown of what a rewrite emits are those that TensorFlow infers."""

from __future__ import annotations

from tests.inspection.inspect_test import training
from tests.model_files.exported import exported
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.topology import parse_topology


def test_all_that_a_tpu_exchanges_has_a_shape() -> None:
    question = Question(
        topology=parse_topology("v5e:2x2"), options=ShardingOptions(min_elements=8), diff=True
    )
    diff = training(inspect(read_model(exported()), question)).diff
    assert diff is not None
    shown = [line for line in diff.lines if line.startswith("+") and "/reduce_scatter/" in line]
    assert shown and not any("# ?" in line for line in shown)
    # Rows of 16x64 along one axis of two, then of the other.
    halves = [line.partition("# ")[2] for line in shown if " = XlaReduceScatter(" in line]
    assert halves == ["[2,8,64] float32", "[1,8,64] float32"] * 2
