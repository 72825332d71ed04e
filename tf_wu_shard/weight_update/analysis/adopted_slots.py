"""Variables that are written with what an update also takes, or with what it computes.

A second moment that is made of sums (Adafactor's, out of the means of rows and columns) has no
gradient on its way. Mostly the update reads it; where it takes what is about to be written, as in a
branch that is written out, the way from there to the write is followed. A slot that is made of
other slots alone has none either: its write looks at a value of the update.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Sharded
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.writes import is_plain_write
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice

_FOLLOWED = (Family.ELEMENTWISE, Family.RELABEL)


def adopted_slots(view: GraphView, slice_: UpdateSlice) -> set[str]:
    """Keys of the variables that are written with whole values that an update takes a shard of.

    Args:
        view: The graph.
        slice_: The update's slice, placed.
    """
    sources = [
        value
        for op in slice_.body
        for value in op.inputs
        if not isinstance(slice_.placements.get(value), Sharded)
        and math.prod(view.shape(value) or ()) == slice_.size
    ]

    return _written_with(view, slice_, _behind(view, sources, slice_.size))


def written_beside(view: GraphView, slice_: UpdateSlice) -> set[str]:
    """Keys of the variables that are written with what an update computes, but not by it.

    Args:
        view: The graph.
        slice_: The update's slice, placed.
    """
    computed = (value for op in slice_.body for value in view.results(op.name))
    return _written_with(view, slice_, computed)


def _written_with(view: GraphView, slice_: UpdateSlice, values: Iterable[Value]) -> set[str]:
    """Keys of the variables that others write with values, or with what these are made into."""
    body = {op.name for op in slice_.body}

    def takers(value: Value) -> Iterator[tuple[Op, int]]:
        return ((op, slot) for op, slot in view.consumers(value) if op.name not in body)

    def made_into(value: Value) -> list[Value]:
        followed = ((op, slot) for op, slot in takers(value) if family_of(op.type) in _FOLLOWED)
        return [op.result_of(slot) for op, slot in followed]

    handles = (
        view.variables.get(op.inputs[0].op)
        for value in reachable(values, made_into)
        for op, slot in takers(value)
        if is_plain_write(op.type) and slot == 1
    )
    return {handle.key for handle in handles if handle is not None}


def _behind(view: GraphView, values: list[Value], size: int) -> set[Value]:
    """The values, and what they are made of element by element."""

    def made_of(value: Value) -> list[Value]:
        op = view.producer(value)
        inputs = op.operands_of(value.index) if family_of(op.type) in _FOLLOWED else ()
        return [value for value in inputs if math.prod(view.shape(value) or ()) == size]

    return set(reachable(values, made_of))
