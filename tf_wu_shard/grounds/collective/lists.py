"""Gathers lists of which each member of a group has one of a length of its own.

A gather takes only what is of one size everywhere. So lists are filled up to the longest, and what
was filled in is left out of what came. All of this is known only when the step runs. Where nobody
has an entry each fills in one, as TensorFlow's ring ends the process that gathers nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf_wu_shard.dtypes import INT32
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.collective.collectives import gathered
from tf_wu_shard.grounds.collective.group import Member


def gathered_lists(at: Emitter, member: Member, lists: Mapping[str, Value]) -> dict[str, Value]:
    """Puts the members' lists one after the other, in the order of their group.

    Args:
        at: Where to emit; it is the member's device.
        member: Who takes part.
        lists: By name, what the member has along the first dimension; as many entries of each.

    Returns:
        By name, the lists of all members in one.
    """
    shapes = {
        name: at.op("Shape", [own], f"{name}/shape", out_type=INT32) for name, own in lists.items()
    }
    count = at.run(next(iter(shapes.values())), 0, 1, "count")
    counts = gathered(at, member, count)
    longest = at.op("Max", [counts, at.constant([0])], "longest")
    most = at.op("Maximum", [longest, at.constant(1)], "most")
    missing = at.op("Sub", [most, count], "missing")
    places = _places(at, counts, most)
    found = {}
    for name, own in lists.items():
        row = at.block(shapes[name], [1], [-1], f"{name}/row")
        filled = _filled(at, own, missing, row, name)
        shape = at.concat([at.constant([-1]), row], f"{name}/rows/shape")
        rows = at.op("Reshape", [gathered(at, member, filled), shape], f"{name}/rows")
        found[name] = at.op("GatherV2", [rows, places, at.constant(0)], name)
    return found


def _places(at: Emitter, counts: Value, most: Value) -> Value:
    """Where entries stand that were not filled in: the first `counts[i]` of the i-th `most`."""
    numbers = at.op("Range", [at.constant(0), most, at.constant(1)], "numbers")
    column = at.reshape(counts, (-1, 1), "column")
    held = at.flat(at.op("Less", [numbers, column], "held"), "held/flat")
    return at.flat(at.op("Where", [held], "where"), "places")


def _filled(at: Emitter, entries: Value, missing: Value, row: Value, name: str) -> Value:
    """A list as a vector, with zeros for `missing` more entries of shape `row` behind it."""
    elements = at.op("Prod", [row, at.constant([0])], f"{name}/elements", keep_dims=True)
    size = at.op("Mul", [missing, elements], f"{name}/missing")
    zeros = at.op("Fill", [size, at.constant(0, at.dtype(entries))], f"{name}/zeros")
    return at.concat([at.flat(entries, f"{name}/flat"), zeros], f"{name}/filled")
