"""How a sparse gradient looks that all replicas put together, in a graph that holds all of them.

Its parts (values, row numbers) of all replicas are put one after the other, in one of two forms:

- per replica an If on whether all have equally many entries: one branch gathers them by
  CollectiveGatherV2, the other pads them first and strips the padding (MirroredStrategy's default
  on CPU devices);
- one ConcatV2 for each part, whose result an Identity passes to each device
  (`ReductionToOneDevice`, `HierarchicalCopyAllReduce` and `NcclAllReduce` there).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tf_wu_shard.dtypes import INTEGERS
from tf_wu_shard.graph.function_body import ARGUMENT, function_view
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices, Gathered

_GATHER = "CollectiveGatherV2"

# The attributes of a StridedSlice that make it another one than from its first bound to its second.
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def gathered_slices(view: GraphView, devices: Sequence[str], total: int) -> list[CarriedReduction]:
    """Finds the parts of sparse gradients that all replicas put together.

    Args:
        view: The graph.
        devices: Per copy that the graph holds, its device.
        total: How many replicas there are; more than copies where other processes have some.

    Returns:
        The parts. Those of one gradient follow each other where one op carries them.
    """
    found = _by_branches(view, devices, total)
    return found if total > len(devices) else [*found, *_on_one_device(view, devices)]


@dataclasses.dataclass(frozen=True)
class _Gathering:
    """One replica's If that gathers a sparse gradient.

    Attributes:
        op: The If.
        parts: What each of its results is, with the operand that it is gathered from.
        lengths: The op that gathers the numbers of entries.
        group: The key of the group.
    """

    op: Op
    parts: tuple[tuple[Gathered, Value], ...]
    lengths: str
    group: int


def _by_branches(view: GraphView, devices: Sequence[str], total: int) -> list[CarriedReduction]:
    groups: dict[int, dict[str, list[_Gathering]]] = {}
    for op in view.of_types("If"):
        if op.name in view.live and op.device in devices:
            found = _gathering(view, op, total)
            if found is not None:
                groups.setdefault(found.group, {}).setdefault(op.device, []).append(found)
    order = _by_device(devices)
    carried: list[CarriedReduction] = []
    for per_device in groups.values():
        columns = [per_device.get(device, []) for device in devices]
        # As with all collectives, the i-th of each replica belong together.
        for own in zip(*columns, strict=True) if len({len(c) for c in columns}) == 1 else ():
            kinds = [tuple(kind for kind, _ in g.parts) for g in own]
            if len(set(kinds)) != 1:
                continue
            carriers = tuple(name for g in own for name in (g.op.name, g.lengths))
            carried += [
                CarriedSlices(
                    operands=tuple(g.parts[i][1] for g in own),
                    results=tuple(Value(g.op.name, i) for g in own),
                    divisor=1,
                    carriers=carriers,
                    gathered=kind,
                    order=order,
                )
                for i, kind in enumerate(kinds[0])
            ]
    return carried


def _by_device(devices: Sequence[str]) -> tuple[int, ...]:
    """A process's replicas in the order in which a collective gathers: that of their devices.

    TensorFlow sorts a group's members by the parts of their devices' names, numbers as numbers
    (CompareFullNames in device_name_utils.cc).
    """

    def parts(replica: int) -> list[tuple[int, str]]:
        found = re.findall(r"\d+|\D+", devices[replica])
        return [(int(text), "") if text.isdigit() else (-1, text) for text in found]

    return tuple(sorted(range(len(devices)), key=parts))


def _gathering(view: GraphView, op: Op, num_replicas: int) -> _Gathering | None:
    """What an If gathers, where both of its branches are known to gather the same."""
    if len(view.results(op.name)) != 3:
        return None
    branches = [
        function_view(view, op.attribute(name).func.name, op.inputs[1:])
        for name in ("then_branch", "else_branch")
    ]
    if None in branches:
        return None
    then, other = (_Branch(branch, num_replicas) for branch in branches if branch is not None)
    if len(then.view.outputs) != 3 or len(other.view.outputs) != 3:
        return None
    plain = [then.gathered(value) for value in then.view.outputs[:2]]
    padded = [other.gathered_padded(value) for value in other.view.outputs[:2]]
    shapes = {branch.argument(branch.view.outputs[2]) for branch in (then, other)}
    if None in plain or plain != [found and found[0] for found in padded] or len(shapes) != 1:
        return None
    (values, group), (rows, other_group) = (found for found in plain if found is not None)
    lengths, other_lengths = (found[1] for found in padded if found is not None)
    shape = shapes.pop()
    if shape is None or group != other_group or lengths != other_lengths:
        return None
    operands = op.inputs[1:]
    if view.dtype(operands[rows]) not in INTEGERS:
        return None
    if not _counts_entries(view, op, operands[lengths], operands[rows]):
        return None
    parts = (
        (Gathered.VALUES, operands[values]),
        (Gathered.ROWS, operands[rows]),
        (Gathered.SHAPE, operands[shape]),
    )
    return _Gathering(op, parts, operands[lengths].op, group)


def _counts_entries(view: GraphView, op: Op, lengths: Value, rows: Value) -> bool:
    """Whether a value is all replicas' numbers of entries, and serves nothing but this If."""
    gather = view.producer(lengths)
    if gather.type != _GATHER or gather.device != op.device:
        return False
    own = view.producer(gather.inputs[0])
    known = view.integers(gather.inputs[0])
    if known is not None:
        if known != view.shape(rows):
            return False
    elif own.type != "Shape" or own.inputs[0] != rows:
        return False
    for consumer, _ in view.consumers(lengths):
        if consumer.name != op.name and consumer.type not in ("Max", "Min"):
            return False
        if consumer.name != op.name:
            ends = {end.type for end, _ in view.consumers(Value(consumer.name))}
            if not ends <= {"Equal"}:
                return False
    return True


class _Branch:
    """A branch's function, read backwards from what it returns."""

    def __init__(self, view: GraphView, num_replicas: int) -> None:
        self.view = view
        self._num_replicas = num_replicas

    def argument(self, value: Value) -> int | None:
        """The number of the argument that a value is, or None."""
        op = self.view.source(value)
        return op.position if op.type == ARGUMENT else None

    def gathered(self, value: Value) -> tuple[int, int] | None:
        """The argument that a result is gathered from, and the group; None of another result."""
        found = self._gather(self.view.source(value))
        argument = self.argument(found[0]) if found is not None else None
        return None if found is None or argument is None else (argument, found[1])

    def gathered_padded(self, value: Value) -> tuple[tuple[int, int], int] | None:
        """The same of a result that is padded for it, and the argument with the lengths.

        The i-th piece of what is gathered goes from i times the longest length to that plus the
        i-th length.
        """
        joined = self.view.source(value)
        if joined.type != "ConcatV2" or len(joined.inputs) != self._num_replicas + 1:
            return None
        *pieces, axis = joined.inputs
        lengths = {self._piece_lengths(piece, number) for number, piece in enumerate(pieces)}
        if self.view.integers(axis) != (0,) or len(lengths) != 1 or None in lengths:
            return None
        sources = {self.view.producer(piece).inputs[0] for piece in pieces}
        if len(sources) != 1:
            return None
        found, length = self._gather(self.view.producer(sources.pop())), lengths.pop()
        pad = self.view.producer(found[0]) if found is not None else None
        argument = self.argument(pad.inputs[0]) if pad is not None and pad.type == "Pad" else None
        if found is None or argument is None or length is None:
            return None
        return (argument, found[1]), length

    def _piece_lengths(self, piece: Value, number: int) -> int | None:
        """The argument with the lengths that piece `number` is cut by; None of another piece."""
        view, cut = self.view, self.view.producer(piece)
        if cut.type != "StridedSlice" or any(cut.attribute(mask).i for mask in _MASKS):
            return None
        start, stop, stride = (self._packed(value) for value in cut.inputs[1:])
        times, plus = view.producer(start), view.producer(stop)
        if times.type != "Mul" or plus.type != "AddV2" or view.integers(stride) != (1,):
            return None
        (factor, most), (base, own) = times.inputs, plus.inputs
        longest, length = view.producer(most), view.producer(own)
        if view.integers(factor) != (number,) or base != start or longest.type != "Max":
            return None
        if length.type != "StridedSlice" or length.attribute("shrink_axis_mask").i != 1:
            return None
        if view.integers(length.inputs[1]) != (number,) or longest.inputs[0] != length.inputs[0]:
            return None
        return self.argument(length.inputs[0])

    def _gather(self, op: Op) -> tuple[Value, int] | None:
        """What an op gathers of all replicas, and the key of their group."""
        if op.type != _GATHER:
            return None
        operand, size, key = op.inputs[:3]
        group = self.view.integers(key)
        if self.view.integers(size) != (self._num_replicas,) or not group:
            return None
        return operand, group[0]

    def _packed(self, value: Value) -> Value:
        """The only element of a vector."""
        op = self.view.producer(value)
        return op.inputs[0] if op.type == "Pack" else value


def _on_one_device(view: GraphView, devices: Sequence[str]) -> list[CarriedReduction]:
    """ConcatV2 over one value of each replica, handed back to each by an Identity of its own."""
    found: list[CarriedReduction] = []
    for op in view.of_types("ConcatV2"):
        if len(op.inputs) != len(devices) + 1 or op.name not in view.live:
            continue
        operands = {view.producer(v).device: v for v in op.inputs[:-1]}
        axis = view.integers(op.inputs[-1])
        if set(operands) != set(devices) or axis != (0,):
            continue
        consumers = view.consumers(Value(op.name))
        results = {c.device: Value(c.name) for c, _ in consumers if c.type == "Identity"}
        if len(consumers) != len(devices) or set(results) != set(devices):
            continue
        shape = view.shape(op.inputs[0])
        is_rows = view.dtype(Value(op.name)) in INTEGERS and (shape is None or len(shape) == 1)
        found.append(
            CarriedSlices(
                operands=tuple(operands[d] for d in devices),
                results=tuple(results[d] for d in devices),
                divisor=1,
                carriers=(op.name,),
                gathered=Gathered.ROWS if is_rows else Gathered.VALUES,
                order=tuple(devices.index(view.producer(v).device) for v in op.inputs[:-1]),
            )
        )
    return found
