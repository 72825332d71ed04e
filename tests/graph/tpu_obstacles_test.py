"""What keeps a TPU program whole is found wherever it stands, and reading changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.graph.tpu_obstacles import obstacle, sums_over_replicas


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
    assert found.startswith(reason) and bool(found) == bool(reason)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_a_sum_counts_in_the_graph_and_in_functions() -> None:
    assert sums_over_replicas(graph_of(node("CrossReplicaSum")))
    assert sums_over_replicas(graph_of(called=(node("CrossReplicaSum"),)))
    assert not sums_over_replicas(graph_of(node("Neg")))
