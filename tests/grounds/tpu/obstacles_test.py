"""What keeps a TPU program whole is found wherever it stands, and reading changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.grounds.tpu.obstacles import cores_obstacle, obstacle, sums_over_replicas


def graph_of(*nodes: Any, called: tuple[Any, ...] = ()) -> Any:
    graph_def: Any = tf.compat.v1.GraphDef()
    graph_def.node.extend(nodes)
    graph_def.library.function.add().node_def.extend(called)
    return graph_def


def node(op: str, program: str = "", host: bool = False) -> Any:
    made: Any = tf.compat.v1.NodeDef(name=op.lower(), op=op)
    if program:
        made.attr["_tpu_replicate"].s = program.encode()
    if host:
        made.attr["_xla_outside_compilation"].s = b"0"
    return made


@pytest.mark.parametrize(
    ("graph_def", "reason"),
    [
        (graph_of(node("Neg", "p"), node("Print")), ""),
        (graph_of(node("Neg", "p", host=True)), "its op 'neg' runs on the host"),
        (graph_of(node("Neg", "other", host=True)), ""),
        (graph_of(node("Neg", "p"), called=(node("Abs", host=True),)), "its op 'abs' runs"),
        (graph_of(node("EnqueueTPUEmbeddingBatch")), "it uses TPU embeddings (EnqueueTPUEmb"),
        (graph_of(called=(node("RecvTPUEmbeddingActivations"),)), "it uses TPU embeddings (Recv"),
    ],
)
def test_host_ops_of_the_program_and_embedding_tables_anywhere_are_obstacles(
    graph_def: Any, reason: str
) -> None:
    before = graph_def.SerializeToString(deterministic=True)
    found = obstacle(graph_def, "p")
    assert str(found or "").startswith(reason) and bool(found) == bool(reason)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_a_sum_counts_in_the_graph_and_in_functions() -> None:
    assert sums_over_replicas(graph_of(node("CrossReplicaSum")))
    assert sums_over_replicas(graph_of(called=(node("CrossReplicaSum"),)))
    assert not sums_over_replicas(graph_of(node("Neg")))


@pytest.mark.parametrize(
    ("cores", "spmd", "reason"),
    [
        (1, True, ""),
        (2, False, "each replica spreads over 2 cores"),
        (4, True, "XLA partitions the program itself over 4 cores a replica (SPMD)"),
    ],
)
def test_more_than_one_core_a_replica_is_an_obstacle(cores: int, spmd: bool, reason: str) -> None:
    metadata = node("TPUReplicateMetadata", "p")
    metadata.attr["num_cores_per_replica"].i = cores
    metadata.attr["use_spmd_for_xla_partitioning"].b = spmd
    assert str(cores_obstacle(metadata) or "") == reason


def test_metadata_that_says_nothing_of_cores_is_read_and_not_changed() -> None:
    metadata = node("TPUReplicateMetadata", "p")
    before = metadata.SerializeToString(deterministic=True)
    assert cores_obstacle(metadata) is None
    assert metadata.SerializeToString(deterministic=True) == before
