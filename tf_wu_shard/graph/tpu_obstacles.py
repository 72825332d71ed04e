"""What in a graph keeps all updates of its TPU program whole: parts that the program shares.

Reads a GraphDef by duck typing and imports no TensorFlow.
"""

from __future__ import annotations

import itertools
from typing import Any

from tf_wu_shard.graph.op import decoded

# The op that says how a program is replicated, and the attribute that names the program that an op
# belongs to.
METADATA = "TPUReplicateMetadata"
MARK = "_tpu_replicate"

_CORES, _SPMD = "num_cores_per_replica", "use_spmd_for_xla_partitioning"
_OUTSIDE_COMPILATION = "_xla_outside_compilation"
_GRADIENT_SUM = "CrossReplicaSum"


def obstacle(graph_def: Any, program: str) -> str:
    """Why no update of a TPU program is sharded.

    Args:
        graph_def: The graph that the program lies in, and the functions that it calls.
        program: The program's name.

    Returns:
        The reason, or "". Ops of functions count as the program's: who calls them is not asked.
    """
    # Asking a map of protocol buffers for a key that it lacks would put it there.
    inside = (n for n in graph_def.node if MARK in n.attr and decoded(n.attr[MARK].s) == program)
    called = [node for function in graph_def.library.function for node in function.node_def]
    for node in itertools.chain(inside, called):
        if _OUTSIDE_COMPILATION in node.attr:
            return f"its op {node.name!r} runs on the host (outside compilation)"
    for node in itertools.chain(graph_def.node, called):
        if "TPUEmbedding" in node.op:
            return f"it uses TPU embeddings ({node.op} {node.name!r}), whose tables keep their own"
    return ""


def cores_obstacle(metadata: Any) -> str:
    """Why no update of a TPU program is sharded, for the cores that a replica of it takes.

    Args:
        metadata: The NodeDef of its TPUReplicateMetadata.

    Returns:
        The reason, or "".
    """
    attributes = metadata.attr
    cores = attributes[_CORES].i if _CORES in attributes else 1
    if cores > 1 and _SPMD in attributes and attributes[_SPMD].b:
        return f"XLA partitions the program itself over {cores} cores a replica (SPMD)"
    return f"each replica spreads over {cores} cores" if cores > 1 else ""


def sums_over_replicas(graph_def: Any) -> bool:
    """Whether a graph or a function that it calls sums anything over TPU replicas.

    Every step that trains does; a function that does not, leaves no update alone.
    """
    bodies = (graph_def.node, *(f.node_def for f in graph_def.library.function))
    return any(node.op == _GRADIENT_SUM for body in bodies for node in body)
