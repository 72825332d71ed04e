"""For which replicas a step is planned, and where they are taken to run."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.graph.tracing import bare_view
from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import one_group, torus_of
from tf_wu_shard.inspection.one_device.what_if import ReplicasInProcess, ReplicasOnTpu
from tf_wu_shard.inspection.steps.grounds import (
    DEFAULT_REPLICAS,
    Question,
    asked_replicas,
    assumed_ground,
    program_in,
    torus,
    traced_ground,
)
from tf_wu_shard.topology import parse_topology

SLICE = parse_topology("v5e:2x2")
PROGRAM = Cluster("cluster", 16, None)


def metadata(replicas: int) -> Any:
    graph_def = tf.compat.v1.GraphDef()
    node = graph_def.node.add(name="meta", op="TPUReplicateMetadata")
    node.attr["num_replicas"].i = replicas
    node.attr["_tpu_replicate"].s = b"cluster"
    return bare_view(graph_def)


@pytest.mark.parametrize(
    ("question", "program", "traced", "replicas"),
    [
        (Question(), None, 1, DEFAULT_REPLICAS),
        (Question(), None, 4, 4),
        (Question(), PROGRAM, 1, 16),
        (Question(replicas=3), PROGRAM, 4, 3),
        (Question(replicas=3, topology=SLICE), PROGRAM, 4, SLICE.num_devices),
    ],
)
def test_what_was_asked_goes_before_what_was_traced(
    question: Question, program: Cluster | None, traced: int, replicas: int
) -> None:
    assert asked_replicas(program, question, traced) == replicas


def test_a_step_of_one_device_runs_in_a_process_unless_a_slice_is_named() -> None:
    assert isinstance(assumed_ground(8, None, Question()), ReplicasInProcess)
    on_slice = assumed_ground(8, None, Question(topology=SLICE))
    assert isinstance(on_slice, ReplicasOnTpu) and on_slice.replicas.total == 8
    assert isinstance(assumed_ground(8, PROGRAM, Question()), ReplicasOnTpu)


def test_a_program_is_read_for_the_replicas_that_it_has() -> None:
    ground = traced_ground(PROGRAM, Question(replicas=2))
    assert isinstance(ground, TpuCluster) and ground.replicas.total == 16
    alone = traced_ground(None, Question(replicas=2))
    assert isinstance(alone, InProcess) and alone.replicas.total == 2


def test_a_slice_of_another_size_does_not_group_replicas() -> None:
    assert torus(4, SLICE) == torus_of(SLICE.coordinates)
    assert torus(8, SLICE) == torus(8, None) == one_group(8)


def test_the_program_of_a_graph_is_found_and_its_replicas_must_make_sense() -> None:
    assert program_in(bare_view(tf.compat.v1.GraphDef())) is None
    found = program_in(metadata(8))
    assert found is not None and found.num_replicas == 8
    for replicas in (0, -1, 2**16 + 1):
        with pytest.raises(ModelFileError, match=f"'meta' makes no sense: it has {replicas} "):
            program_in(metadata(replicas))
