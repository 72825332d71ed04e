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
from typing import Any

from tf_wu_shard.dtypes import INTEGERS
from tf_wu_shard.graph.constants import integers
from tf_wu_shard.graph.op import Op, Value, attribute_in
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices, Gathered

_GATHER = "CollectiveGatherV2"


def gathered_slices(view: GraphView, devices: Sequence[str]) -> list[CarriedReduction]:
    """Finds the parts of sparse gradients that all replicas put together.

    Args:
        view: The graph.
        devices: Per replica, its device.

    Returns:
        The parts. Those of one gradient follow each other where one op carries them.
    """
    return [*_by_branches(view, devices), *_on_one_device(view, devices)]


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


def _by_branches(view: GraphView, devices: Sequence[str]) -> list[CarriedReduction]:
    groups: dict[int, dict[str, list[_Gathering]]] = {}
    for op in view:
        if op.type == "If" and op.name in view.live and op.device in devices:
            found = _gathering(view, op, len(devices))
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
    """The replicas in the order in which a collective gathers: that of their devices.

    TensorFlow sorts a group's members by the parts of their devices' names, numbers as numbers
    (CompareFullNames in device_name_utils.cc).
    """

    def parts(replica: int) -> list[tuple[int, str]]:
        found = re.findall(r"\d+|\D+", devices[replica])
        return [(int(text), "") if text.isdigit() else (-1, text) for text in found]

    return tuple(sorted(range(len(devices)), key=parts))


def _gathering(view: GraphView, op: Op, num_replicas: int) -> _Gathering | None:
    """What an If gathers, where both of its branches are known to gather the same."""
    then = _Branch.of(view, op, "then_branch")
    other = _Branch.of(view, op, "else_branch")
    if then is None or other is None or len(then.returned) != 3 or len(other.returned) != 3:
        return None
    gathered = [then.gathered(i, num_replicas) for i in (0, 1)]
    padded = [other.gathered_padded(i, num_replicas) for i in (0, 1)]
    shapes = {then.argument(then.returned[2]), other.argument(other.returned[2])}
    if gathered[0] is None or gathered[1] is None or len(shapes) != 1 or None in shapes:
        return None
    if padded[0] is None or padded[1] is None or padded[0][:2] != gathered[0]:
        return None
    if padded[1][:2] != gathered[1] or padded[0][2] != padded[1][2]:
        return None
    if gathered[0][1] != gathered[1][1]:
        return None

    def operand(argument: int | None) -> Value:
        assert argument is not None, "it is an argument"
        return op.inputs[1 + argument]

    values, rows = operand(gathered[0][0]), operand(gathered[1][0])
    lengths = operand(padded[0][2])
    if view.dtype(rows) not in INTEGERS or not _counts_entries(view, op, lengths, rows):
        return None
    parts = (
        (Gathered.VALUES, values),
        (Gathered.ROWS, rows),
        (Gathered.SHAPE, operand(shapes.pop())),
    )
    return _Gathering(op, parts, lengths.op, gathered[0][1])


def _counts_entries(view: GraphView, op: Op, lengths: Value, rows: Value) -> bool:
    """Whether a value is all replicas' numbers of entries, and serves nothing but this If."""
    gather = view.producer(lengths)
    if gather.type != _GATHER or gather.device != op.device:
        return False
    own = view.producer(gather.inputs[0])
    known = integers(view.constant(gather.inputs[0]))
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

    def __init__(self, function: Any) -> None:
        self._nodes = {node.name: node for node in function.node_def}
        self._arguments = {a.name: i for i, a in enumerate(function.signature.input_arg)}
        self.returned = [function.ret[a.name] for a in function.signature.output_arg]

    @classmethod
    def of(cls, view: GraphView, op: Op, attribute: str) -> _Branch | None:
        function = view.functions.get(op.attribute(attribute).func.name)
        return None if function is None else cls(function)

    def argument(self, text: str) -> int | None:
        """The number of the argument that a value is, or None."""
        node = self._node(text)
        while node is not None and node.op == "Identity":
            text = node.input[0]
            node = self._node(text)
        return self._arguments.get(text)

    def gathered(self, output: int, num_replicas: int) -> tuple[int, int] | None:
        """The argument that a result is gathered from, and the group; None of another result."""
        node = self._beyond_identities(self.returned[output])
        found = self._gather(node, num_replicas)
        if found is None:
            return None
        argument = self.argument(found[0])
        return None if argument is None else (argument, found[1])

    def gathered_padded(self, output: int, num_replicas: int) -> tuple[int, int, int] | None:
        """The same of a result that is padded for it, and the argument with the lengths.

        The i-th piece of what is gathered goes from i times the longest length to that plus the
        i-th length.
        """
        joined = self._beyond_identities(self.returned[output])
        if joined is None or joined.op != "ConcatV2":
            return None
        *pieces, axis = _data(joined)
        if len(pieces) != num_replicas or self._integers(axis) != (0,):
            return None
        whole, lengths = set(), set()
        for number, piece in enumerate(pieces):
            node = self._node(piece)
            if node is None or node.op != "StridedSlice" or not _is_plain_slice(node):
                return None
            source, begin, end, stride = _data(node)
            whole.add(source)
            lengths.add(self._piece_lengths(begin, end, number))
            if self._integers(self._packed(stride)) != (1,):
                return None
        if len(whole) != 1 or len(lengths) != 1 or None in lengths:
            return None
        found = self._gather(self._node(whole.pop()), num_replicas)
        if found is None:
            return None
        pad = self._node(found[0])
        argument = self.argument(_data(pad)[0]) if pad is not None and pad.op == "Pad" else None
        length = lengths.pop()
        if argument is None or length is None:
            return None
        return argument, found[1], length

    def _piece_lengths(self, begin: str, end: str, number: int) -> int | None:
        """The argument with the lengths that piece `number` is cut by."""
        start, stop = self._packed(begin), self._packed(end)
        times, plus = self._node(start), self._node(stop)
        if times is None or times.op != "Mul" or plus is None or plus.op != "AddV2":
            return None
        factor, longest = _data(times)
        longest_node = self._node(longest)
        base, own = _data(plus)
        own_node = self._node(own)
        if self._integers(factor) != (number,) or base != start:
            return None
        if longest_node is None or longest_node.op != "Max" or own_node is None:
            return None
        if own_node.op != "StridedSlice" or attribute_in(own_node.attr, "shrink_axis_mask").i != 1:
            return None
        lengths, first, _, _ = _data(own_node)
        if self._integers(first) != (number,) or _data(longest_node)[0] != lengths:
            return None
        return self.argument(lengths)

    def _gather(self, node: Any, num_replicas: int) -> tuple[str, int] | None:
        if node is None or node.op != _GATHER:
            return None
        operand, size, key = _data(node)[:3]
        group = self._integers(key)
        if self._integers(size) != (num_replicas,) or group is None:
            return None
        return operand, group[0]

    def _packed(self, text: str) -> str:
        """The only element of a vector."""
        node = self._node(text)
        return _data(node)[0] if node is not None and node.op == "Pack" else text

    def _integers(self, text: str) -> tuple[int, ...] | None:
        node = self._node(text)
        if node is None or node.op != "Const":
            return None
        return integers(attribute_in(node.attr, "value").tensor)

    def _node(self, text: str) -> Any | None:
        return self._nodes.get(text.partition(":")[0])

    def _beyond_identities(self, text: str) -> Any | None:
        node = self._node(text)
        while node is not None and node.op == "Identity":
            node = self._node(node.input[0])
        return node


def _data(node: Any) -> list[str]:
    return [text for text in node.input if not text.startswith("^")]


def _is_plain_slice(node: Any) -> bool:
    return all(
        attribute_in(node.attr, name).i == 0
        for name in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    )


def _on_one_device(view: GraphView, devices: Sequence[str]) -> list[CarriedReduction]:
    """ConcatV2 over one value of each replica, handed back to each by an Identity of its own."""
    found: list[CarriedReduction] = []
    for op in view:
        if op.type != "ConcatV2" or len(op.inputs) != len(devices) + 1 or op.name not in view.live:
            continue
        operands = {view.producer(v).device: v for v in op.inputs[:-1]}
        axis = integers(view.constant(op.inputs[-1]))
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
