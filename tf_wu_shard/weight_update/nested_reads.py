"""Redirects the reads of a branch or loop body onto shards that are written further inside of it.

A loop that trains with accumulated gradients reads the weights in its body and writes them in a
branch there. The argument that was the variable is the handle of its shards from then on, for the
body's own reads as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.nodes import with_inputs
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.layout import TileLayout
from tf_wu_shard.weight_update.rewrite.border import Redirected, redirected
from tf_wu_shard.weight_update.rewrite.outside_accesses import InShards


def redirect_reads(
    view: GraphView, layouts: Mapping[str, TileLayout], writers: Iterable[str], dialect: Dialect
) -> Redirected | None:
    """Replaces reads of variables that ops of the same graph write in shards.

    Args:
        view: The graph, in which each variable is an argument.
        layouts: For each such variable, by its key, how it is cut.
        writers: Names of the branches and loops that write them.
        dialect: How the graph's replicas talk.

    Returns:
        The new graph, of the same arguments, or None where nothing is read.
    """
    arguments = {name: ref.key for name, ref in view.variables.items() if ref.key in layouts}
    apart = {name: f"{name}/shards" for name in arguments}
    hosts = set(writers)
    nodes = [
        with_inputs(op.node, apart) if op.name in hosts else op.node
        for op in view
        if op.name not in arguments
    ]
    nodes += [view.ops[name].node for name in arguments]
    # What writes the shards takes them already; to the reads they are not the variable.
    nodes += [_placeholder(name) for name in apart.values()]
    writing: dict[str, list[str]] = {}
    for name, key in arguments.items():
        users = [
            op.name for op in view if op.name in hosts and any(v.op == name for v in op.inputs)
        ]
        writing.setdefault(key, []).extend(users)
    before = view.with_graph(graph_def_of(nodes, view.graph_def))
    new = redirected(before, InShards(layouts, writers=writing), lambda key, program: dialect)
    if new is None:
        return None
    of_key = {key: name for name, key in arguments.items()}
    back = {other: name for name, other in apart.items()}
    back |= {added.placeholder: of_key[added.slot] for added in new.shard_inputs}
    kept = tuple(with_inputs(node, back) for node in new.nodes if node.name not in back)
    return Redirected(kept, (), new.control_outputs, new.outputs)


def _placeholder(name: str) -> Any:
    node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = tf.resource.as_datatype_enum
    return node
