"""The cluster of a graph is what its metadata says, whole or damaged."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.grounds.tpu.cluster import Cluster, cluster_by
from tf_wu_shard.refusals import Topology


def metadata(program: str, replicas: int | None = None) -> Any:
    node: Any = tf.compat.v1.NodeDef(name=program, op="TPUReplicateMetadata")
    if program:
        node.attr["_tpu_replicate"].s = program.encode()
    if replicas is not None:
        node.attr["num_replicas"].i = replicas
    return node


@pytest.mark.parametrize(
    ("nodes", "cluster"),
    [
        ([], None),
        ([metadata("p", 4)], Cluster("p", 4, None)),
        ([metadata("")], Cluster("", 0, None)),
    ],
)
def test_name_and_size_are_the_metadata_s(nodes: list[Any], cluster: Cluster | None) -> None:
    before = [node.SerializeToString(deterministic=True) for node in nodes]
    assert cluster_by(nodes) == cluster
    assert [node.SerializeToString(deterministic=True) for node in nodes] == before


def test_several_clusters_are_refused() -> None:
    found = cluster_by([metadata("p", 4), metadata("q", 4)])
    assert found is not None and found.name == "p"
    assert found.refusal == Topology.SEVERAL_PROGRAMS.at(count=2)
