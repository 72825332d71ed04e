"""The ops that call branches and loop bodies, and the nodes in those, once they were rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tf_wu_shard.dtypes import BOOL, FLOAT32
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.calls import names_in, rename
from tf_wu_shard.graph.nodes import copy_of, rewired
from tf_wu_shard.graph.op import attribute_in, parse_value
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.program.nesting import Nested
from tf_wu_shard.weight_update.rewrite.names import scope_of

# An op, its attribute that names functions, and which of them.
Place = tuple[str, str, int]


def place_of(nested: Nested) -> Place:
    """Where a branch or body is called."""
    return nested.op, nested.attribute, nested.number


def by_place(nested: Iterable[Nested]) -> dict[Place, Nested]:
    """Branches and bodies by where they are called."""
    return {place_of(one): one for one in nested}


def as_arguments(nodes: Iterable[Any], handles: Mapping[str, str | None]) -> list[Any]:
    """Nodes in which the shards' new inputs are the arguments that were the variables'."""
    found = []
    for node in nodes:
        if node.name in handles:
            continue
        found.append(rewired(node, [handles.get(text) or text for text in node.input]))
    return found


def calling(nodes: Iterable[Any], made: Mapping[Place, Any]) -> list[Any]:
    """Nodes that call the functions made instead of the old ones."""
    found = []
    for node in nodes:
        own = [place for place in made if place[0] == node.name]
        if own:
            node = copy_of(node)
            for place in own:
                attribute = node.attr[place[1]]
                names = names_in(attribute)
                names[place[2]] = made[place].name.decode()
                rename(attribute, names)
        found.append(node)
    return found


def agreeing(
    nodes: Iterable[Any], branches: Mapping[str, bool], builder: GraphBuilder, dialect: Dialect
) -> list[Any]:
    """Nodes in which all replicas skip an update that one of them skips.

    Without, replicas that disagree (a gradient overflows on one of them) would wait for each other
    for ever: one half reduces gradients and the other does not.

    Args:
        nodes: NodeDefs.
        branches: The branch ops concerned, as `nested_updates` finds them.
        builder: Where to emit.
        dialect: How the replicas talk.
    """
    found = []
    for node in nodes:
        if node.name in branches and attribute_in(node.attr, "Tcond").type == BOOL:
            old, node = node, copy_of(node)
            value, scope = parse_value(old.input[0]), scope_of(old.name, "agreed")
            at = builder.at("", scope)
            votes = at.cast(builder.note(value, BOOL), FLOAT32, "votes")
            ((total,),) = dialect.all_reduce(at, [[votes]], [()])
            # All vote for the first branch, or, where the update is in the second, any of them.
            needed = dialect.replicas.total if branches[old.name] else 1
            least = at.constant(needed - 0.5, FLOAT32)
            node.input[0] = str(at.op("Greater", [total, least], ""))
        found.append(node)
    return found
