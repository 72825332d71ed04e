"""Which branches and calls of a program are handed gradients that were reduced before them.

It goes where a reduced gradient goes as a tensor of more than one element: through arithmetic, and
through variables that are written with it (gradients that a step accumulates). What it finds is
proved nowhere: it is where the analysis looks for updates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tf_wu_shard.graph.calls import BRANCHES, first_argument
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.tpu.ops import is_in
from tf_wu_shard.reachable import reachable
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

    def is_wanted(op: Op, slot: int) -> bool:
        return op.type in calls and slot >= first_argument(op.type)

    def is_scalar(value: Value) -> bool:
        # Of a handle, the shape that counts is that of its variable.
        ref = view.variables.get(value.op)
        return (view.stated(value) if ref is None else ref.shape) == ()

    def following(value: Value) -> Iterator[Value]:
        for op, slot in view.consumers(value):
            made = view.results(op.name) if is_wanted(op, slot) else _following(view, op, slot)
            # Arithmetic makes several elements of several, and to ask for a shape takes long.
            if value in scalars or family_of(op.type) is not Family.ELEMENTWISE:
                made = tuple(one for one in made if not is_scalar(one))
            yield from made

    sums = [value for one in carried for value in one.results]
    scalars = {value for value in sums if is_scalar(value)}
    reduced = {*reachable(sums, following)}
    return tuple(
        op
        for op in view.of_types(*calls)
        if op.name in view.live
        and op.name not in view.part_wise
        and not reduced.isdisjoint(op.inputs[first_argument(op.type) :])
        and is_in(op.node, program)
    )


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
