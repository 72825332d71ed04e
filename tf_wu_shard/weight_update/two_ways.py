"""Ops that run functions of which some use a slot's shards, and others the whole slot.

A function that was redirected when it was traced takes the shards; one that was left to whoever
runs it takes the whole slot, which is read before the op and written after it. Nothing orders the
one against the other but that a branch op runs one of its functions.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tf_wu_shard.dtypes import BOOL
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.calls import IFS, LOOPS, callee_names, first_argument, is_call
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.rules.variables import Access
from tf_wu_shard.step.accesses import access_by_callee, accesses


class _Use(NamedTuple):
    """What the functions with this number in an op do to a slot."""

    number: int
    by_shards: bool
    writes: bool


def branches_apart(
    view: GraphView, callees: Mapping[str, str], handles: Mapping[str, VariableRef]
) -> dict[tuple[str, str], int]:
    """Finds branch ops of which one branch writes the shards of a slot, and one the whole slot.

    Args:
        view: The graph.
        callees: The slot of each placeholder of a shard that is there for functions, by its key.
        handles: Those of the whole slots.

    Returns:
        By the op's name and the slot's key, the number of the branch that writes the whole slot:
        only where that is taken, what it hands back is to be written.

    Raises:
        StorageError: If one function does both, or may run before and after the other.
    """
    of_shards = [(placeholder, key, True) for placeholder, key in callees.items()]
    of_whole = [(handle, ref.key, False) for handle, ref in handles.items()]
    used: dict[tuple[str, str], set[_Use]] = collections.defaultdict(set)
    for handle, key, by_shards in (*of_shards, *of_whole):
        ops = {access.op.name: access.op for access in accesses(view, handle)}
        for op in ops.values():
            if is_call(op.type):
                used[op.name, key].update(_uses(view, op, handle, by_shards))
    found = {}
    for (name, key), uses in used.items():
        writing = [use for use in uses if use.writes]
        if len({use.by_shards for use in uses}) == 1 or not writing:
            continue
        op = view.ops[name]
        mixed = any(
            one.number == other.number and one.by_shards and not other.by_shards
            for one in uses
            for other in uses
        )
        whole = {use.number for use in writing if not use.by_shards}
        by_both = bool(whole) and any(use.by_shards for use in writing)
        is_known = op.type in IFS and view.dtype(op.inputs[0]) == BOOL and len(whole) == 1
        if mixed or op.type in LOOPS or (by_both and not is_known):
            raise StorageError(
                f"functions that {name!r} runs use slot {key!r}, which lives in shards, as it was"
                " when they were traced, and nothing says in which order; trace all of it before"
                " the first step that is sharded, or use the slot in one of them alone"
            )
        if by_both:
            found[name, key] = whole.pop()
    return found


def _uses(view: GraphView, op: Op, handle: str, by_shards: bool) -> Iterator[_Use]:
    """What each function of an op does to a variable of which it takes a handle."""
    for slot, value in enumerate(op.inputs):
        argument = slot - first_argument(op.type)
        if value.op != handle or argument < 0:
            continue
        for number, name in enumerate(callee_names(op.node)):
            access = access_by_callee(view, name, argument)
            if access is not Access.PASSED_ON:
                yield _Use(number, by_shards, not access.is_read)
