"""All that is done to the graph of a step before the analysis looks at it, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.in_process.recognise import sums_in_process
from tf_wu_shard.grounds.tpu.ops import SUM
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.flatten import lift, write_out, write_out_updates
from tf_wu_shard.program.if_conversion import if_converted
from tf_wu_shard.program.part_wise import with_part_wise
from tf_wu_shard.step.capture import Captured


def prepared(
    graph: CalledGraph,
    captured: Captured,
    program: str,
    num_replicas: int,
    reduced: Callable[[GraphView], Iterable[CarriedReduction]] | None = None,
) -> Captured:
    """The same function, with what its TPU program does to variables in sight.

    Args:
        graph: The function.
        captured: Its graph and variables.
        program: Name of the TPU program in it, or "" where all of it is inside of one.
        num_replicas: How many replicas run the program.
        reduced: Finds its gradient reductions; None for what the replicas of a TPU sum.
    """
    captured = write_out(graph, captured, program)
    # Before reads are lifted: what works part by part reads the parts.
    captured = with_part_wise(graph, captured, program, num_replicas)
    # Where nothing says what is reduced, all that a branch does may be a step of its own.
    in_parts = reduced is None
    captured = if_converted(graph, captured, program, reduced or sums, in_parts=in_parts)
    return lift(graph, captured, program)


def prepared_copies(
    graph: CalledGraph,
    captured: Captured,
    in_shards: Set[str],
    shards: Set[str] = frozenset(),
    *,
    calls: bool,
) -> Captured:
    """The same function, with the updates in sight that replicas of a process make of their sums.

    Args:
        graph: The function; each of the replicas has a copy of the program in it.
        captured: Its graph and variables.
        in_shards: Keys of its slots that live in shards.
        shards: Placeholders of shards that it takes for functions which it calls.
        calls: Whether functions that it calls are looked into that take no slots in shards, and
            what XLA compiles, which is handed to it again in the end.
    """
    if calls or in_shards:
        captured = write_out_updates(
            graph, captured, sums_in_process, in_shards, shards, updates=calls
        )
    return if_converted(graph, captured, "", sums_in_process, recompiled=calls)


def sums(view: GraphView) -> tuple[CarriedReduction, ...]:
    """What the replicas of a TPU program sum."""
    return tuple(
        CarriedReduction(op.inputs[:1], (Value(op.name),), 1, (op.name,))
        for op in view.of_types(SUM)
    )
