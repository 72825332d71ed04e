"""Which branches and calls of a program are handed gradients that were reduced before them.

It goes where a reduced gradient goes as a tensor of more than one element: through arithmetic, and
through variables that are written with it (gradients that a step accumulates). What it finds is
proved nowhere: it is where the analysis looks for updates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tf_wu_shard.graph.calls import BRANCHES, first_argument
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.tpu.ops import program_of
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import num_written

# What takes packed gradients apart.
_APART = frozenset({"SplitV", "Split"})


def calling_with_reduced_operands(
    view: GraphView, program: str, carried: Iterable[CarriedReduction], calls: Collection[str]
) -> tuple[Op, ...]:
    """Finds them.

    Args:
        view: The graph.
        program: Name of the TPU program in it, or "" where there is none, or all is inside of one.
        carried: Its gradient reductions.
        calls: Types of the ops to find, all of which call functions.

    Returns:
        The ops, in the order of the view; but for those that work on variables part by part, which
        may stay as they are.
    """
    found: set[str] = set()
    stack = [result for reduction in carried for result in reduction.results]
    seen = set(stack)
    while stack:
        for op, slot in view.consumers(stack.pop()):
            wanted = op.type in calls and slot >= first_argument(op.type)
            here = not program or program_of(op.node) == program.encode()
            if wanted and here and op.name not in view.part_wise:
                found.add(op.name)
            for value in view.results(op.name) if wanted else _following(view, op, slot):
                # Of a handle, the shape that counts is that of its variable.
                ref = view.variables.get(value.op)
                shape = view.stated(value) if ref is None else ref.shape
                if value not in seen and shape != ():
                    stack.append(value)
                    seen.add(value)
    return tuple(op for op in view if op.name in found)


def _following(view: GraphView, op: Op, slot: int) -> tuple[Value, ...]:
    """Where a gradient goes on to that enters an op by one of its operands."""
    if written := num_written(op.type):
        return op.inputs[:written]
    if op.passes_each_on:
        return (op.result_of(slot),)
    if op.type in _APART or op.type == READ or (op.type in BRANCHES and slot > 0):
        return view.results(op.name)
    if family_of(op.type) in (Family.ELEMENTWISE, Family.RELABEL):
        return (Value(op.name),)
    return ()
