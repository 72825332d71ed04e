"""What carries the sums of a step, of each replica of this worker one op, and what is in it."""

from __future__ import annotations

from typing import TypeAlias

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.partial_sums.steps.entries import following
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.step import Step

# The ops that carry one sum, in the order of the replicas.
Carried: TypeAlias = tuple[Op, ...]

_SUM = "CollectiveReduceV2"
_HAS_BATCH = "OptionalHasValue"


def carried_sums(step: Step) -> list[Carried]:
    """What carries a step's sums, in the order of the ops."""
    view = step.view
    found = {one.carriers: None for one in step.reductions if one.gathered is None}
    found |= {(op.name,): None for op in sums_of_workers(step)}
    places = {op.name: place for place, op in enumerate(view)}
    sums = [tuple(view.ops[name] for name in names) for names in found]
    for op in (op for one in sums for op in one):
        merge, final = (op.attribute(one).s.decode() for one in ("merge_op", "final_op"))
        if op.type != _SUM or (merge, final) != ("Add", "Id"):
            raise WuShardError(f"{op.name} ({op.type}) is no plain sum: {merge}, {final}")
    return sorted(sums, key=lambda one: places[one[0].name])


def counts_of_batches(step: Step) -> tuple[list[Carried], list[Carried]]:
    """Sums of how many replicas have a batch, as where a dataset ends, and all others."""
    counts: list[Carried] = []
    others: list[Carried] = []
    for one in carried_sums(step):
        (counts if _counts_batches(step.view, one[0].inputs[0]) else others).append(one)
    return counts, others


def sums_of_workers(step: Step) -> list[Op]:
    """Sums of one value a worker, and not one a replica: numbers of batches, or for the caller.

    The replicas of a worker have added up their own before, as they do with numbers of batches and
    with metrics. To a step they are sums over some replicas, which it refuses.
    """
    view, replicas = step.view, step.replicas
    if len(replicas.local) < 2:
        return []
    workers = (replicas.total // len(replicas.local),)
    ops = (view.ops[one.where] for one in step.refused if one.where in view.ops)
    sums = [op for op in ops if op.type == _SUM and view.integers(op.inputs[1]) == workers]
    return [op for op in sums if _counts_batches(view, op.inputs[0]) or not _is_written(view, op)]


def _is_written(view: GraphView, op: Op) -> bool:
    """Whether a variable that is trained is written with what follows from an op."""

    def trains(user: Op) -> bool:
        ref = view.variables.get(user.inputs[0].op) if user.type in WRITES else None
        return ref.trainable if ref is not None else user.name in view.effects

    return any(
        trains(user)
        for value in reachable(view.results(op.name), lambda value: following(view, value))
        for user, _ in view.consumers(value)
    )


def _counts_batches(view: GraphView, value: Value) -> bool:
    """Whether a value says of nothing else than of iterators whether they have a batch."""

    def before(value: Value) -> tuple[Value, ...]:
        op = view.producer(value)
        return () if op.type == _HAS_BATCH else op.inputs

    ends = [view.producer(one) for one in reachable([value], before) if not before(one)]
    types = {op.type for op in ends}
    return _HAS_BATCH in types and types <= {_HAS_BATCH, "Const"}


def names_of(carried: Carried) -> tuple[str, ...]:
    """The names of the ops that carry a sum."""
    return tuple(op.name for op in carried)


def added(at: Emitter, carried: Carried) -> Value:
    """What the replicas of this worker give to a sum."""
    own = [op.inputs[0] for op in carried]
    return own[0] if len(own) == 1 else at.op("AddN", own, f"{carried[0].name}/own")


def joined(at: Emitter, part: GradientReduction) -> Value:
    """What the replicas of this worker have of a list, one after the other."""
    if len(part.operands) == 1:
        return part.operands[0]
    own = [*part.operands, at.constant(0)]
    return at.op("ConcatV2", own, f"{part.carriers[0]}/own")
