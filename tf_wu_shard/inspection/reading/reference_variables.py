"""Weights that TensorFlow 1 keeps in reference variables, which nothing here can share.

Such a variable is an op that yields its own buffer. It has no handle that could be given a shard,
and no TPU runs it. TensorFlow 1 makes them unless it is asked for resource variables.
"""

from __future__ import annotations

from typing import Any

_VARIABLES = frozenset({"Variable", "VariableV2"})

# The fused updates of such variables: ApplyAdam, SparseApplyFtrl. Those of resource variables have
# "Resource" before them. What else writes one may be an initializer, a restore or a counter.
_UPDATES = ("Apply", "SparseApply")


def reference_weights(graph_def: Any) -> tuple[str, ...]:
    """The reference variables that a graph trains.

    Args:
        graph_def: The GraphDef.

    Returns:
        Their names, in the order of their updates.
    """
    variables = {node.name for node in graph_def.node if node.op in _VARIABLES}
    updated = (
        node.input[0].partition(":")[0]
        for node in graph_def.node
        if node.op.startswith(_UPDATES) and node.input
    )
    return tuple(dict.fromkeys(name for name in updated if name in variables))


def said_of(weights: tuple[str, ...]) -> str:
    """The answer about such weights, of which there are some."""
    which = f"{weights[0]} is a reference variable"
    if len(weights) > 1:
        which = f"{weights[0]} and {len(weights) - 1:,} more are reference variables"
    return (
        f"left alone: {which} of TensorFlow 1, which cannot live in shards:"
        " tf.compat.v1.enable_resource_variables() makes those that can"
    )
