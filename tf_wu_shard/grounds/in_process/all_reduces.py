"""How the sums look that a MirroredStrategy makes with a `cross_device_ops` for several GPUs.

`tf.distribute.NcclAllReduce()` makes one NcclAllReduce for each replica, which belong together by a
name. `tf.distribute.HierarchicalCopyAllReduce()` makes additions: on one device of each half of the
replicas, then of both halves, and copies back the same way. Both pack all gradients into one vector
and cut it into as many pieces as they were asked for, each of which is a sum of its own; the sums
are put together again before the gradients are taken out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value, decoded
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import Replicas

NCCL_SUM = "NcclAllReduce"
ADDITION = "AddN"


def nccl_sums(view: GraphView, replicas: Replicas) -> tuple[list[CarriedReduction], list[Refusal]]:
    """The sums that NcclAllReduce ops make.

    Args:
        view: The graph.
        replicas: Who trains it.

    Returns:
        The sums, and why others were not taken.
    """
    found: list[CarriedReduction] = []
    refused: list[Refusal] = []
    by_name: dict[bytes, list[Op]] = {}
    for op in view.of_types(NCCL_SUM):
        if op.name in view.live:
            by_name.setdefault(op.attribute("shared_name").s, []).append(op)
    for ops in by_name.values():
        reduction, members = ops[0].attribute("reduction").s, ops[0].attribute("num_devices").i
        on = {op.device: op for op in ops}
        if reduction != b"sum":
            merge = decoded(reduction)
            refused.append(refusals.Topology.NO_SUM.at(ops[0].name, merge=merge, final="Id"))
        elif members != replicas.total:
            refused.append(
                refusals.Topology.OTHER_GROUP.at(
                    ops[0].name, members=str(members), replicas=replicas.total
                )
            )
        elif len(on) != len(ops) or set(on) != set(replicas.devices):
            refused.append(refusals.Topology.SUM_OF_SOME_IN_THIS_GRAPH.at(ops[0].name))
        else:
            own = [on[device] for device in replicas.devices]
            found.append(
                CarriedReduction(
                    tuple(op.inputs[0] for op in own),
                    tuple(Value(op.name) for op in own),
                    1,
                    tuple(op.name for op in own),
                )
            )
    return found, refused


def terms_of(view: GraphView, total: Op, devices: Sequence[str]) -> dict[str, Value] | None:
    """What an AddN adds up, one term of each replica, by device; None where it is no such sum.

    Args:
        view: The graph.
        total: The AddN.
        devices: Per replica, its device.

    Returns:
        The terms. Where it adds up sums of halves that nobody else reads, theirs.
    """
    inner = [view.producer(value) for value in total.inputs]
    for values in (total.inputs, [value for op in inner for value in op.inputs]):
        found = {view.producer(value).device: value for value in values}
        if len(values) == len(devices) == len(found) and set(found) == set(devices):
            return found
        if not all(op.type == ADDITION and _is_read_once(view, Value(op.name)) for op in inner):
            return None
    return None


def additions_of(view: GraphView, total: Op, terms: Iterable[Value]) -> tuple[str, ...]:
    """Names of the AddN ops that a sum is made of, the last of them first."""
    if set(terms) == set(total.inputs):
        return (total.name,)
    return (total.name, *(value.op for value in total.inputs))


def handed_back(view: GraphView, value: Value, devices: Sequence[str]) -> dict[str, Value] | None:
    """The Identity of each device by which all get a value, by way of one for each half or not.

    Args:
        view: The graph.
        value: The value.
        devices: Per replica, its device.

    Returns:
        By device; None where somebody else gets it, or not everybody.
    """
    ends = [op for op, _ in view.consumers(value)]
    for _ in range(2):
        if any(op.type != "Identity" for op in ends):
            return None
        found = {op.device: Value(op.name) for op in ends}
        if len(ends) == len(devices) == len(found) and set(found) == set(devices):
            return found
        ends = [op for end in ends for op, _ in view.consumers(Value(end.name))]
    return None


def rejoined(view: GraphView, sums: Iterable[CarriedReduction]) -> list[CarriedReduction]:
    """Sums of all pieces of a vector as one sum of the vector.

    Summing commutes with cutting and putting together.

    Args:
        view: The graph.
        sums: Sums over replicas.

    Returns:
        The sums, in no order.
    """
    found: list[CarriedReduction] = []
    pieces: dict[tuple[str, ...], dict[int, CarriedReduction]] = {}
    for one in sums:
        cuts = [view.producer(operand) for operand in one.operands]
        numbers = {operand.index for operand in one.operands}
        if len(numbers) > 1 or not all(_cuts_a_vector(view, cut) for cut in cuts):
            found.append(one)
            continue
        own = pieces.setdefault(tuple(cut.name for cut in cuts), {})
        own[numbers.pop()] = one
    for cut_by, own in pieces.items():
        whole = _of_whole(view, cut_by, [own[number] for number in sorted(own)])
        found += [*own.values()] if whole is None else [whole]
    return found


def _of_whole(
    view: GraphView, cut_by: tuple[str, ...], sums: Sequence[CarriedReduction]
) -> CarriedReduction | None:
    """The sum of what was cut, if these are the sums of all its pieces and nothing else is read."""
    results = []
    for copy, cut in enumerate(cut_by):
        parts = view.results(cut)
        joined = _joined(view, [one.results[copy] for one in sums])
        if len(parts) != len(sums) or joined is None:
            return None
        if not all(_is_read_once(view, part) for part in parts):
            return None
        results.append(joined)
    if len({one.divisor for one in sums}) != 1:
        return None
    carriers = tuple(name for one in sums for name in one.carriers)
    operands = tuple(view.ops[cut].inputs[0] for cut in cut_by)
    return CarriedReduction(operands, tuple(results), sums[0].divisor, (*carriers, *cut_by))


def _joined(view: GraphView, values: Sequence[Value]) -> Value | None:
    """What a replica's sums of pieces are put together to, one piece after the other."""
    ends = [_passed_on(view, value) for value in values]
    if len(ends) == 1:
        return ends[0]
    read = [view.consumers(end) for end in ends]
    if any(len(consumers) != 1 for consumers in read):
        return None
    op, _ = read[0][0]
    if op.type != "ConcatV2" or view.integers(op.inputs[-1]) != (0,):
        return None
    return Value(op.name) if list(op.inputs[:-1]) == ends else None


def _passed_on(view: GraphView, value: Value) -> Value:
    """The same value at the end of a row of Identities that nobody else reads."""
    while True:
        consumers = view.consumers(value)
        if len(consumers) != 1 or consumers[0][0].type != "Identity":
            return value
        value = Value(consumers[0][0].name)


def _cuts_a_vector(view: GraphView, op: Op) -> bool:
    return op.type == "SplitV" and view.integers(op.inputs[2]) == (0,)


def _is_read_once(view: GraphView, value: Value) -> bool:
    return len(view.consumers(value)) == 1
