"""The grounds that a model's step is, or might be, run on: which replicas, how many, and where."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.tpu.cluster import Cluster, cluster_by
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.ops import METADATA
from tf_wu_shard.grounds.tpu.torus import Torus, one_group, torus_of
from tf_wu_shard.inspection.one_device.what_if import ReplicasInProcess, ReplicasOnTpu
from tf_wu_shard.topology import Topology

# What is asked of a step that was traced on one device.
DEFAULT_REPLICAS = 8


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked of a model.

    Attributes:
        replicas: For how many replicas to plan; None for those that a step was traced for.
        topology: The TPU slice that they are, or None where they share a process or are those of
            the step.
        function: The only function to look at, or None for all.
        options: How to shard; None for the defaults.
        diff: Whether to compare the graph with its rewrite.
    """

    replicas: int | None = None
    topology: Topology | None = None
    function: str | None = None
    options: ShardingOptions | None = None
    diff: bool = False


def program_in(view: GraphView) -> Cluster | None:
    """The TPU program in a graph, or None where there is none.

    Raises:
        ModelFileError: Its number of replicas makes no sense.
    """
    metadata = [op.node for op in view.of_types(METADATA)]
    program = cluster_by(metadata)
    if program is None:
        return None
    # A TPU pod has thousands of cores; a group of replicas is written out.
    if not 1 <= program.num_replicas <= 2**16:
        raise ModelFileError(
            f"{metadata[0].name!r} makes no sense: it has {program.num_replicas} replicas"
        )
    return program._replace(refusal=program.against(view.graph_def))


def traced_ground(program: Cluster | None, question: Question) -> Dialect:
    """The ground that a step is read on."""
    if program is not None:
        return TpuCluster(program.name, one_group(program.num_replicas))
    return assumed_ground(asked_replicas(program, question), program, question)


def asked_replicas(program: Cluster | None, question: Question, traced: int = 1) -> int:
    """For how many replicas to plan.

    Args:
        program: The TPU program that the step is, or None.
        question: What was asked.
        traced: For how many replicas of one process the step was traced; 1 for one device.
    """
    if question.topology is not None:
        return question.topology.num_devices
    if question.replicas is not None:
        return question.replicas
    if program is not None:
        return program.num_replicas
    return traced if traced > 1 else DEFAULT_REPLICAS


def assumed_ground(replicas: int, program: Cluster | None, question: Question) -> Dialect:
    """The ground to plan for.

    Args:
        replicas: How many replicas.
        program: The TPU program that the step is, or None.
        question: What was asked.
    """
    if program is None and question.topology is None:
        return ReplicasInProcess(replicas)
    return ReplicasOnTpu(torus(replicas, question.topology))


def torus(replicas: int, topology: Topology | None) -> Torus:
    """The replicas of a TPU: a slice's where it has so many, else all in one group."""
    if topology is None or topology.num_devices != replicas:
        return one_group(replicas)
    return torus_of(topology.coordinates)
