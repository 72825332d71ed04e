"""What in a graph keeps all updates of its TPU program whole: parts that the program shares.

Reads a GraphDef by duck typing and imports no TensorFlow.
"""

from __future__ import annotations

import itertools
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import decoded
from tf_wu_shard.grounds.tpu.ops import ON_HOST, PROGRAM, SUM
from tf_wu_shard.refusals import Refusal

_CORES, _SPMD = "num_cores_per_replica", "use_spmd_for_xla_partitioning"


def obstacle(graph_def: Any, program: str) -> Refusal | None:
    """Why no update of a TPU program is sharded.

    Args:
        graph_def: The graph that the program lies in, and the functions that it calls.
        program: The program's name.

    Returns:
        The reason, or None. Ops of functions count as the program's: who calls them is not asked.
    """
    # Asking a map of protocol buffers for a key that it lacks would put it there.
    inside = (
        n for n in graph_def.node if PROGRAM in n.attr and decoded(n.attr[PROGRAM].s) == program
    )
    called = [node for function in graph_def.library.function for node in function.node_def]
    for node in itertools.chain(inside, called):
        if ON_HOST in node.attr:
            return refusals.Topology.ON_HOST.at(op=node.name)
    for node in itertools.chain(graph_def.node, called):
        if "TPUEmbedding" in node.op:
            return refusals.Topology.TPU_EMBEDDINGS.at(op_type=node.op, op=node.name)
    return None


def cores_obstacle(metadata: Any) -> Refusal | None:
    """Why no update of a TPU program is sharded, for the cores that a replica of it takes.

    Args:
        metadata: The NodeDef of its TPUReplicateMetadata.

    Returns:
        The reason, or None.
    """
    attributes = metadata.attr
    cores = attributes[_CORES].i if _CORES in attributes else 1
    if cores > 1 and _SPMD in attributes and attributes[_SPMD].b:
        return refusals.Topology.PARTITIONED_BY_XLA.at(cores=cores)
    return refusals.Topology.SEVERAL_CORES_A_REPLICA.at(cores=cores) if cores > 1 else None


def sums_over_replicas(graph_def: Any) -> bool:
    """Whether a graph or a function that it calls sums anything over TPU replicas.

    Every step that trains does; a function that does not, leaves no update alone.
    """
    bodies = (graph_def.node, *(f.node_def for f in graph_def.library.function))
    return any(node.op == SUM for body in bodies for node in body)
