"""Variables that are written with what an update also takes.

A second moment that is made of sums (Adafactor's, out of the means of rows and columns) has no
gradient on its way. Mostly the update reads it; where it takes what is about to be written, as in a
branch that is written out, the way from there to the write is followed.
"""

from __future__ import annotations

import math

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Sharded
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.variables import WRITES
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice

_FOLLOWED = (Family.ELEMENTWISE, Family.RELABEL)


def adopted_slots(view: GraphView, slice_: UpdateSlice) -> set[str]:
    """Keys of the variables that are written with whole values that an update takes a shard of.

    Args:
        view: The graph.
        slice_: The update's slice, placed.
    """
    body = {op.name for op in slice_.body}
    sources = [
        value
        for op in slice_.body
        for value in op.inputs
        if not isinstance(slice_.placements.get(value), Sharded)
        and math.prod(view.shape(value) or ()) == slice_.size
    ]
    stack = [*_behind(view, sources, slice_.size)]
    seen: set[Value] = set()
    found: set[str] = set()
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        for op, slot in view.consumers(value):
            handle = view.variables.get(op.inputs[0].op)
            if op.type in WRITES and slot == 1 and handle is not None:
                found.add(handle.key)
            elif op.name not in body and family_of(op.type) in _FOLLOWED:
                stack.append(Value(op.name))
    return found


def _behind(view: GraphView, values: list[Value], size: int) -> set[Value]:
    """The values, and what they are made of element by element."""
    stack, found = [*values], set(values)
    while stack:
        op = view.producer(stack.pop())
        if family_of(op.type) not in _FOLLOWED:
            continue
        for value in op.inputs:
            if value not in found and math.prod(view.shape(value) or ()) == size:
                found.add(value)
                stack.append(value)
    return found
