"""All workers shard the update of a step, or none does.

A worker whose step sums gradients by an all-reduce waits for ever for one whose step scatters
them. So workers vote before anything is changed: first on whether all want the same, with equal
plans, options and versions, then on whether all have made it. A worker that says no, wants
something else or does not answer in time leaves all as they were, and each worker's report has the
reasons.

A step that was voted on is not voted on again when another trace of it comes to the same: workers
trace at times of their own, as their batches have other shapes. One that all agreed on has to find
its slots in shards. Slots that are whole yet are those of another optimizer, which some workers may
have to leave whole: that takes a vote of its own. One that was refused stays so while its slots are
whole; where this worker itself has nothing to shard, it goes on having nothing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step.accesses import accesses
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.gradients import result_names
from tf_wu_shard.step.replicas import workers_of
from tf_wu_shard.storage import captured_slots, copies_apart, replica_values
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.slot_reads import keys_written_in, read_together
from tf_wu_shard.workers.agreement import PLAN, Decision, Proposal
from tf_wu_shard.workers.cluster import name_of

# Where a trained variable keeps the plans that all workers agreed on, and what they refused.
_AGREED = "_wu_shard_agreed"
_REFUSED = "_wu_shard_refused"

# The part of a proposal that differs where copies of a variable do.
_VALUES = "values of its variables"


def against_others(
    captured: Captured, plan: ShardingPlan, options: ShardingOptions
) -> Refusal | None:
    """The first vote: whether all workers shard what this one plans to.

    Args:
        captured: The function's graph and variables.
        plan: What is planned; nothing is rewritten yet.
        options: What the user asked for.

    Returns:
        What keeps this worker from it; None where all do the same, or where there are no others.

    Raises:
        StorageError: If slots live in shards already, and some workers said nothing or have another
            step: they may go on with what this worker's would not fit.
    """
    cluster = workers_of(captured)
    trained = _trained(plan, captured)
    if cluster is None or not trained:
        return None
    digest = _digest(captured, plan, options)
    agreed_on = _kept(captured, trained, _AGREED)
    if digest in agreed_on and _moves_nothing(captured, plan):
        return None
    subject = {
        "version": _version(),
        "options": repr(options),
        PLAN: digest,
    }
    why = sorted({left.refusal.reason for left in plan.left_alone})
    nothing = None if plan.variables else "; ".join(why) or "it has nothing to shard"
    refused = _kept(captured, trained, _REFUSED)
    asked = repr((subject, nothing and _unnumbered(nothing)))
    in_shards = captured_slots.slots_in_shards(captured)
    if asked in refused and (nothing is not None or not in_shards):
        return refused[asked]
    cluster.read_seconds = options.read_seconds
    # They differ from one trace to the next; what was refused stays so.
    proposal = Proposal(subject | {_VALUES: _values(captured, plan)}, nothing)

    def once_made() -> None:
        agreed_on[digest] = None

    about = [_name(captured, key) for key in trained]
    decision = cluster.begin(about, proposal, options.agreement_seconds, once_made)
    # Of what it does not want itself it has its own reasons.
    found = None if nothing is not None else _refusal(captured, decision)
    if not decision.agreed:
        refused[asked] = found
    return found


def check_without_flag(captured: Captured) -> None:
    """The first vote on a function that is not to be sharded, but whose slots live in shards.

    Where it writes some, it reads them by collectives: other ones than those of the step as it was
    when the flag was on, which another worker may still run.

    Args:
        captured: The function's graph and variables.

    Raises:
        StorageError: If not all workers have such a function.
    """
    in_shards = sorted(captured_slots.slots_in_shards(captured))
    cluster = workers_of(captured) if in_shards else None
    read = [] if cluster is None else _reads_of_others(captured, set())
    if cluster is None or not read:
        return
    digest = hashlib.sha256(repr(("off", read)).encode()).hexdigest()[:16]
    agreed_on = _kept(captured, in_shards, _AGREED)
    if digest in agreed_on:
        return

    def once_made() -> None:
        agreed_on[digest] = None

    about = sorted({*read})
    proposal = Proposal({"version": _version(), "options": "the flag is off", PLAN: digest})
    seconds = ShardingOptions().agreement_seconds
    _refusal(captured, cluster.begin(about, proposal, seconds, once_made))


def confirm(captured: Captured) -> Refusal | None:
    """The second vote: whether all workers have made what they agreed on.

    Args:
        captured: The function's graph and variables.

    Returns:
        What keeps all from using it, or None.

    Raises:
        StorageError: As `against_others`.
    """
    cluster = workers_of(captured)
    decision = None if cluster is None else cluster.confirm(None)
    if decision is None:
        return None
    return _refusal(captured, decision)


def abandon(captured: Captured | None, error: Exception) -> None:
    """Tells the other workers, where they wait for it, that this one cannot do as agreed.

    Args:
        captured: The function's graph and variables; None where it was not even read.
        error: What happened.
    """
    cluster = None if captured is None else workers_of(captured)
    if cluster is not None:
        cluster.confirm(f"{type(error).__name__}: {error}")


def _refusal(captured: Captured, decision: Decision) -> Refusal | None:
    if decision.agreed:
        return None
    said = decision.summary
    apart = decision.silent or PLAN in decision.differing
    if apart and (slots := captured_slots.slots_in_shards(captured)):
        raise StorageError(
            f"slots live in shards ({min(slots)} is one), and the workers do not all trace this"
            f" function: {said}. Trace the same function on all workers, with the same flag and"
            " options and the same reads of slots in it, or restart them from the last checkpoint"
        )
    if decision.differing == (_VALUES,):
        return refusals.Topology.OTHER_VALUES_ELSEWHERE.at()
    return refusals.Topology.NOT_ON_ALL_WORKERS.at(said=said)


def _version() -> str:
    return importlib.metadata.version("tf-wu-shard")


def _trained(plan: ShardingPlan, captured: Captured) -> list[str]:
    """The weights that a function trains, by key.

    A slot that the function also reads counts as a weight of its own. It is left out: a worker that
    alone reads one is to vote on the same as the others.
    """
    keys = {v.key for update in plan.updates for v in update.weights}
    keys |= {left.variable for left in plan.left_alone}
    keys &= captured.variables.keys()
    return sorted({k for k in keys if captured.variables[k].trainable} or keys)


def _values(captured: Captured, plan: ShardingPlan) -> str:
    """What is equal on all workers whose copies of what a plan updates are alike.

    Each worker has compared its own.
    """
    updates = [({v.key for v in one.variables}, one.outside) for one in plan.updates]
    found = {
        _name(captured, key): captured.variables[key]
        for key in copies_apart.concerned(captured.view, updates)
        if key in captured.variables
    }
    return replica_values.digest([found[name] for name in sorted(found)])


def _moves_nothing(captured: Captured, plan: ShardingPlan) -> bool:
    """Whether all slots of a plan live in shards already."""
    held = captured_slots.slots_in_shards(captured)
    return all(slot.variable in held for slot in plan.in_shards)


def _kept(captured: Captured, trained: list[str], attribute: str) -> dict[str, Refusal | None]:
    """What was decided on these variables before; the first of them keeps it."""
    first: Any = captured.variables[trained[0]]
    found: dict[str, Refusal | None] = vars(first).setdefault(attribute, {})
    return found


def _name(captured: Captured, key: str) -> str:
    """What all workers call a variable of a graph."""
    return name_of(key, captured.variables.get(key))


def _digest(captured: Captured, plan: ShardingPlan, options: ShardingOptions) -> str:
    """What is equal on all workers that do the same, and differs where they exchange other things.

    It has the plan, what gradients travel in, the weights that are whole between two updates, as
    one worker's Python code may look at one there, what the updates compute with besides gradients
    and variables, as constants may come from such code, and the reads of other slots in which all
    workers take part.
    """
    found = hashlib.sha256()

    def add(*what: object) -> None:
        found.update(repr(what).encode())

    places = {variable.variable: place for place, variable in enumerate(plan.variables)}
    add(options.wire_dtype, options.dialect)
    add(plan.num_replicas, [reduction.key for reduction in plan.summed_whole])
    for stack in plan.stacks:
        members = [(places[member.update.name], member.number) for member in stack.members]
        add(members, stack.each, stack.by_turns)
    for variable in plan.variables:
        add(_name(captured, variable.variable), variable.layouts)
        add(variable.dtype, variable.bucket, variable.update.reductions)
        slots = variable.in_shards
        add([(_name(captured, slot.variable), slot.layout, slot.dtype) for slot in slots])
        weights = variable.update.weights
        add([(_name(captured, weight.key), weight.versions) for weight in weights])
    add(_reads_of_others(captured, {slot.variable for slot in plan.in_shards}))
    computed = _Computed(captured, result_names(captured.view, plan.reductions))
    for variable in plan.variables:
        add([computed.digest(op.ops[0]) for op in variable.update.body])
    return found.hexdigest()[:16]


class _Computed:
    """Digests of what ops of a graph compute, down to gradients, variables and constants.

    They go by what enters an op, and not by its name or its place among others, which are not the
    same on all workers where the threads of several replicas build a graph.
    """

    def __init__(self, captured: Captured, gradients: Mapping[Value, tuple[int, int]]) -> None:
        self._captured = captured
        self._view = captured.view
        self._gradients = gradients
        self._known: dict[str, bytes] = {}

    def digest(self, name: str) -> str:
        """The digest of an op."""
        pending, begun = [name], set[str]()
        while pending:
            op = self._view.ops[pending[-1]]
            # What a loop leads back to was begun.
            before = [name for name in self._entering(op) if name not in self._known.keys() | begun]
            begun.add(op.name)
            pending += before
            if not before:
                self._known.setdefault(op.name, self._of(op))
                pending.pop()
        return self._known[name].hex()

    def _entering(self, op: Op) -> list[str]:
        return [value.op for value in self._operands(op) if value not in self._gradients]

    def _operands(self, op: Op) -> Iterator[Value]:
        """What an op takes; of an IdentityN what that passes on, without what is beside it.

        A gradient that is reduced stands beside the worker's own one.
        """
        return (self._view.unbundled(value, self._gradients) for value in op.inputs)

    def _of(self, op: Op) -> bytes:
        found = hashlib.sha256(op.type.encode())
        if op.type == "Const":
            found.update(op.attribute("value").tensor.SerializeToString(deterministic=True))
        variable = self._view.variables.get(op.name)
        if variable is not None:
            found.update(_name(self._captured, variable.key).encode())
        for value in self._operands(op):
            key, _ = self._gradients.get(value, (None, 0))
            before = self._known.get(value.op, b"") if key is None else repr(key).encode()
            found.update(b"%d:%s" % (value.index, before))
        return found.digest()[:8]


def _reads_of_others(captured: Captured, planned: set[str]) -> list[str]:
    """Slots that all workers read together though the plan has them not, once for each read."""
    view, slots = captured.view, captured_slots.slots_in_shards(captured)
    handles = {handle: ref for handle, ref in view.variables.items() if ref.key in slots}
    written = (planned & slots.keys()) | keys_written_in(view, handles)
    together = read_together(slots, [slots[key] for key in written]) - planned
    return sorted(
        _name(captured, ref.key)
        for handle, ref in handles.items()
        if ref.key in together
        for _ in accesses(view, handle)
    )


def _unnumbered(name: str) -> str:
    return re.sub(r"[0-9]+", "", name)
