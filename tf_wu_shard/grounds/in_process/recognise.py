"""How a sum over replicas looks in a graph that holds a copy of each, or of one of several workers.

Two forms: one CollectiveReduceV2 per replica (MirroredStrategy's default, and the only one of
workers), and one AddN over all replicas whose result, perhaps divided by their number, is passed to
each device by an Identity (`cross_device_ops=tf.distribute.ReductionToOneDevice()`, and what
replicas write to a variable with an aggregation). `all_reduces` knows two more.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value, decoded
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.in_process.all_reduces import (
    ADDITION,
    NCCL_SUM,
    additions_of,
    handed_back,
    nccl_sums,
    rejoined,
    terms_of,
)
from tf_wu_shard.grounds.in_process.gathered_slices import gathered_slices
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import Replicas, in_this_process, of_workers

_COLLECTIVE = "CollectiveReduceV2"

# Their second operand says how many replicas they join.
SIZED = frozenset({_COLLECTIVE, "CollectiveGatherV2"})

# They give each replica another part of what all have.
PARTS = frozenset({"CollectiveReduceScatterV2", "CollectiveAllToAllV2", "CollectiveAllToAllV3"})

# What may be a sum over replicas.
SUMS = frozenset({_COLLECTIVE, ADDITION, NCCL_SUM})


def replica_devices(view: GraphView) -> tuple[str, ...]:
    """Per copy that the graph holds, its device, as the mirrored variables show it.

    Returns:
        The devices, or () where no variable is mirrored or the variables do not agree.
    """
    layouts: set[tuple[str, ...]] = set()
    devices: dict[str, dict[int, str]] = {}
    counts: dict[str, int] = {}
    for ref in view.variables.values():
        if ref.mirrored and ref.num_replicas + ref.replicas_elsewhere > 1:
            devices.setdefault(ref.key, {})[ref.replica] = ref.device
            counts[ref.key] = ref.num_replicas
    for key, found in devices.items():
        if len(found) == counts[key]:
            layouts.add(tuple(found[r] for r in range(counts[key])))
    return layouts.pop() if len(layouts) == 1 else ()


def replicas_in(view: GraphView) -> Replicas:
    """The replicas that train a graph, as its mirrored variables show them.

    Returns:
        Those of this process, or of all workers; nobody where the variables do not agree.
    """
    devices = replica_devices(view)
    elsewhere = {ref.replicas_elsewhere for ref in view.variables.values() if ref.mirrored}
    if not any(elsewhere):
        return in_this_process(devices)
    if not devices or len(elsewhere) > 1 or (total := sum(elsewhere, len(devices))) % len(devices):
        return in_this_process(())
    return of_workers(devices, total)


def recognise_in_process(
    view: GraphView, replicas: Replicas
) -> tuple[list[CarriedReduction], list[Refusal]]:
    """Finds the sums over replicas, see `Dialect.recognise`."""
    found, refused = _sums(view, replicas)
    found += gathered_slices(view, replicas.devices, replicas.total)
    found.sort(key=lambda r: view.ops[r.carriers[0]].position)
    return found, refused


def sums_in_process(view: GraphView) -> list[CarriedReduction]:
    """Every sum over the replicas of a graph, none of them a TPU's, in its order.

    Parts of sparse gradients, which are put one after the other and not added up, are left out.
    """
    found, _ = _sums(view, replicas_in(view))
    return sorted(found, key=lambda r: view.ops[r.carriers[0]].position)


def reduced_values(view: GraphView) -> tuple[Value, ...]:
    """What every such sum yields."""
    return tuple(result for reduction in sums_in_process(view) for result in reduction.results)


def _sums(view: GraphView, replicas: Replicas) -> tuple[list[CarriedReduction], list[Refusal]]:
    collectives = [op for op in view.of_types(_COLLECTIVE) if op.name in view.live]
    if not replicas.total:
        return [], [refusals.Topology.REPLICA_UNKNOWN.at(c.name) for c in collectives[:1]]
    found, refused = _collective_sums(view, collectives, replicas)
    if len(replicas.local) == replicas.total:
        by_nccl, others = nccl_sums(view, replicas)
        found += rejoined(view, [*by_nccl, *_sums_on_one_device(view, replicas.devices)])
        refused += others
    return found, refused


def _collective_sums(
    view: GraphView, collectives: list[Op], replicas: Replicas
) -> tuple[list[CarriedReduction], list[Refusal]]:
    """Pairs the copies' collectives: the i-th of a group on each device belong together."""
    devices = replicas.devices
    groups: dict[int, dict[str, list[Op]]] = {}
    refused: list[Refusal] = []
    for op in collectives:
        merge, final = op.attribute("merge_op").s, op.attribute("final_op").s
        size, key = view.integers(op.inputs[1]), view.integers(op.inputs[2])
        if merge != b"Add" or final not in (b"Id", b"Div"):
            refused.append(
                refusals.Topology.NO_SUM.at(op.name, merge=decoded(merge), final=decoded(final))
            )
        elif size != (replicas.total,) or not key:
            refused.append(
                refusals.Topology.OTHER_GROUP.at(
                    op.name, members=str(size[0]) if size else "?", replicas=replicas.total
                )
            )
        else:
            groups.setdefault(key[0], {}).setdefault(op.device, []).append(op)
    found: list[CarriedReduction] = []
    for per_device in groups.values():
        columns = [per_device.get(device, []) for device in devices]
        if len({len(c) for c in columns}) != 1 or len(per_device) != len(devices):
            where = next(iter(per_device.values()))[0].name
            refused.append(refusals.Topology.SUM_OF_SOME_IN_THIS_GRAPH.at(where))
            continue
        for ops in zip(*columns, strict=True):
            if len({(op.attribute("final_op").s, op.attribute("T").type) for op in ops}) != 1:
                refused.append(refusals.Topology.SUMMED_DIFFERENTLY.at(ops[0].name))
                continue
            found.append(
                CarriedReduction(
                    operands=tuple(op.inputs[0] for op in ops),
                    results=tuple(Value(op.name) for op in ops),
                    divisor=replicas.total if ops[0].attribute("final_op").s == b"Div" else 1,
                    carriers=tuple(op.name for op in ops),
                )
            )
    return found, refused


def _sums_on_one_device(view: GraphView, devices: Sequence[str]) -> list[CarriedReduction]:
    """AddN over one value of each replica, handed back to each by an Identity of its own.

    For a mean, the sum is divided by the number of replicas first.
    """
    found: list[CarriedReduction] = []
    for op in view.of_types(ADDITION):
        if op.name not in view.live:
            continue
        terms = terms_of(view, op, devices)
        carriers = _with_division(view, op, len(devices))
        results = None if terms is None else handed_back(view, Value(carriers[-1]), devices)
        if terms is not None and results is not None:
            found.append(
                CarriedReduction(
                    tuple(terms[d] for d in devices),
                    tuple(results[d] for d in devices),
                    1 if len(carriers) == 1 else len(devices),
                    (*additions_of(view, op, terms.values()), *carriers[1:]),
                )
            )
    return found


def _with_division(view: GraphView, total: Op, count: int) -> tuple[str, ...]:
    """The op that sums, and the one that divides the sum by the number of terms, if one does."""
    consumers = view.consumers(Value(total.name))
    if len(consumers) == 1 and consumers[0][0].type == "RealDiv" and consumers[0][1] == 0:
        division = consumers[0][0]
        if view.floating_scalar(division.inputs[1]) == count:
            return (total.name, division.name)
    return (total.name,)
