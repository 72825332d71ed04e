"""What libtpu makes of a graph of TensorFlow 1 whose update is sharded."""

from __future__ import annotations

import pathlib

import pytest
import tensorflow as tf

import tf_wu_shard
from tests.graph_def import programs
from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.tpu_compiler.body import replica_body
from tf_wu_shard.tpu_compiler.chips import CHIPS
from tf_wu_shard.tpu_compiler.figures import Memory, figures_of
from tf_wu_shard.tpu_compiler.hlo import hlo_of

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def test_the_reduce_scatters_of_a_v1_adam_survive_on_sixteen_chips(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    graph = programs.graph(
        programs.optimizer_step(programs.OPTIMIZERS["adam"]),
        replicas=16,
        sizes=(256, 512),
        device_assignment=programs.assignment("v5e:4x4"),
    )
    rewritten = tf_wu_shard.rewrite_graph_def(graph.graph_def).graph_def
    function = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(rewritten, name=""), [])
    (tmp_path / "step.pb").write_bytes(hlo_of(replica_body(function.graph)))
    answer = compiler.ask(
        "compile",
        hlo=str(tmp_path / "step.pb"),
        topology="v5e:4x4",
        chip_config=CHIPS["v5e"].config,
        optimized=str(tmp_path / "step.hlo"),
    )
    assert not answer["error"]
    text = (tmp_path / "step.hlo").read_text(encoding="utf-8")
    figures = figures_of(text, Memory(**answer["memory"]), CHIPS["v5e"], {})
    # The weight's, along two axes; the bias is summed whole.
    expected = {"reduce-scatter": 2, "all-gather": 2, "all-reduce": 1}
    assert answer["requested"] == expected
    assert figures.collectives == expected
