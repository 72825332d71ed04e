"""Which TPU program a GraphDef holds, read off its nodes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.graph_def.program import program_of
from tf_wu_shard.refusals import Refusal, Topology


def graph_def(*nodes: tuple[str, str, str], replicas: int = 4, programs: int = 1) -> Any:
    """A GraphDef of programs and more nodes: name, type, program."""
    made: Any = tf.compat.v1.GraphDef()
    for number in range(programs):
        metadata = made.node.add(name=f"metadata_{number}", op="TPUReplicateMetadata")
        metadata.attr["_tpu_replicate"].s = f"program_{number}".encode()
        metadata.attr["num_replicas"].i = replicas
    for name, op_type, program in nodes:
        node = made.node.add(name=name, op=op_type)
        if program:
            node.attr["_tpu_replicate"].s = program.encode()
    return made


def against(graph: Any) -> Refusal | None:
    return program_of(graph).refusal


def test_a_program_is_the_ops_that_carry_its_name() -> None:
    program = program_of(graph_def(("inside", "Neg", "program_0"), ("outside", "Neg", "")))
    assert (program.name, program.num_replicas, program.refusal) == ("program_0", 4, None)
    assert [node.name for node in program.nodes] == ["metadata_0", "inside"]


def test_one_replica_reduces_nothing() -> None:
    assert against(graph_def(replicas=1)) == Topology.PROGRAM_OF_ONE_REPLICA.at()


def test_of_two_programs_neither_is_taken() -> None:
    assert against(graph_def(programs=2)) == Topology.SEVERAL_PROGRAMS_IN_GRAPH.at(count=2)


def test_a_loop_of_tensorflow_1_counts_only_inside_of_the_program() -> None:
    assert against(graph_def(("enter", "Enter", ""))) is None
    refusal = against(graph_def(("enter", "Enter", "program_0")))
    assert str(refusal).startswith("it holds a loop of TensorFlow 1 (Enter 'enter')")


def test_tpu_embeddings_count_wherever_they_are() -> None:
    refusal = against(graph_def(("tables", "EnqueueTPUEmbeddingIntegerBatch", "")))
    said = "it uses TPU embeddings (EnqueueTPUEmbeddingIntegerBatch 'tables')"
    assert str(refusal).startswith(said)
