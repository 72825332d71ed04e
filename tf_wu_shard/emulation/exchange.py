"""What replicas exchange on a TPU, in plain ops between their copies in one process.

Sums are taken in the order of the replicas of a group; a real TPU sums in an order of its own
choice. Operands of different shapes, which no TPU program has, are an error when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tf_wu_shard.emulation import attributes
from tf_wu_shard.emulation.clones import SHARED_SCOPE, Clones
from tf_wu_shard.errors import EmulationError
from tf_wu_shard.graph.builder import KEEP_ORDER
from tf_wu_shard.grounds.tpu import all_gather_module

_INT32 = attributes.dtype(3)

# XlaAllReduce and XlaReduceScatter name their reductions so; sums and means are taken apart.
_REDUCTIONS = {"Min": "Min", "Max": "Max", "Mul": "Prod"}


class _Site:
    """One collective of the program, where it is being replaced."""

    def __init__(self, clones: Clones, node: Any) -> None:
        self.clones = clones
        self.node = node
        self.dtype = node.attr["T"] if "T" in node.attr else _only_type(node)
        self.rows = clones.inputs(node)
        self._turn = len(clones.nodes)
        self._count = 0

    def device(self, replica: int) -> str:
        return self.clones.replicas[replica].device

    def host(self, group: Sequence[int]) -> str:
        """The device that works for a group; the next member's the next time."""
        self._turn += 1
        return self.device(group[self._turn % len(group)])

    def op(self, op_type: str, inputs: Sequence[str], device: str, **attrs: Any) -> str:
        """Adds an op between the replicas and returns its name."""
        self._count += 1
        name = f"{SHARED_SCOPE}{self.node.name}/{op_type}_{self._count}"
        self.clones.add(op_type, name, inputs, device, attrs=attrs)
        return name

    def const(self, value: npt.ArrayLike, device: str) -> str:
        dtype = attributes.dtype(attributes.tensor(value).tensor.dtype)
        name = self.op("Const", (), device, dtype=dtype, value=attributes.tensor(value))
        return f"{name}:output:0"

    def give(self, replica: int, value: str) -> None:
        """Makes `value` the collective's result in a replica, once all that it waits for is done.

        It takes the name that the collective's copy would have had.
        """
        copy = self.clones.replicas[replica]
        controls = [text[1:] for text in self.rows[replica] if text[0] == "^"]
        name = copy.prefix + self.node.name
        attrs = {"T": self.dtype}
        self.clones.add("Identity", name, [value], copy.device, controls=controls, attrs=attrs)

    def groups(self) -> list[list[int]]:
        """The replica groups; every replica is in one, and they are of one size.

        No groups at all mean one of all replicas.

        Raises:
            EmulationError: They are not.
        """
        found: list[list[int]] = self.clones.constant(self.node, 1).tolist()
        if not any(found):
            return [list(range(len(self.clones.replicas)))]
        members = sorted(replica for group in found for replica in group)
        if members != list(range(len(self.clones.replicas))):
            raise EmulationError(
                f"{self.node.op} {self.node.name!r} cannot be emulated: its replica groups {found}"
                f" do not hold each of the {len(self.clones.replicas)} replicas once"
            )
        return found

    def reduced(self, group: Sequence[int], operation: str) -> str:
        """The reduction of a group's operands.

        Raises:
            EmulationError: There is no such reduction.
        """
        if operation in ("Add", "Mean"):
            total = self._sum(group)
            return self._mean(total, group) if operation == "Mean" else total
        if operation not in _REDUCTIONS:
            raise EmulationError(
                f"{self.node.op} {self.node.name!r} cannot be emulated: no reduction is called"
                f" {operation!r}"
            )
        device, count = self.host(group), attributes.integer(len(group))
        first = attributes.integer(0)
        operands = [self.rows[replica][0] for replica in group]
        packed = self.op("Pack", operands, device, N=count, T=self.dtype, axis=first)
        inputs = (f"{packed}:output:0", self.const(np.int32(0), device))
        name = self.op(_REDUCTIONS[operation], inputs, device, T=self.dtype, Tidx=_INT32)
        return f"{name}:output:0"

    def _sum(self, group: Sequence[int]) -> str:
        """((v0 + v1) + v2) + ...: each member adds its own operand to what those before it have.

        One AddN of all operands would begin with any whose buffer it may take over. Nor may the
        graph optimizer make one of several: of these, or of one of them and what a replica's own
        operand is a sum of.
        """
        first, *others = group
        total = self.rows[first][0]
        attrs = {"N": attributes.integer(2), "T": self.dtype, KEEP_ORDER: attributes.flag(True)}
        for replica in others:
            operands = (total, self.rows[replica][0])
            total = f"{self.op('AddN', operands, self.device(replica), **attrs)}:sum:0"
        return total

    def _mean(self, total: str, group: Sequence[int]) -> str:
        device = self.device(group[-1])
        size = self.const(np.int32(len(group)), device)
        cast = self.op("Cast", (size,), device, SrcT=_INT32, DstT=self.dtype)
        return f"{self.op('Div', (total, f'{cast}:y:0'), device, T=self.dtype)}:z:0"

    def split(self, value: str, axis: int, parts: int, device: str) -> list[str]:
        """`value` cut into equal parts along an axis."""
        inputs = (self.const(np.int32(axis), device), value)
        count = attributes.integer(parts)
        name = self.op("Split", inputs, device, T=self.dtype, num_split=count)
        return [f"{name}:output:{part}" for part in range(parts)]

    def joined(self, values: Sequence[str], axis: int, device: str) -> str:
        """The concatenation of values along an axis."""
        if len(values) == 1:
            return values[0]
        inputs = [*values, self.const(np.int32(axis), device)]
        count = attributes.integer(len(values))
        name = self.op("ConcatV2", inputs, device, N=count, T=self.dtype, Tidx=_INT32)
        return f"{name}:output:0"


def _only_type(node: Any) -> Any:
    """The type of the results of an op with a list of them; they are all of one."""
    return attributes.dtype(node.attr["Tout"].list.type[0])


def _all_reduce(site: _Site, operation: str) -> None:
    for group in site.groups():
        result = site.reduced(group, operation)
        for replica in group:
            site.give(replica, result)


def _cross_replica_sum(site: _Site) -> None:
    _all_reduce(site, "Add")


def _xla_all_reduce(site: _Site) -> None:
    _all_reduce(site, site.node.attr["reduce_op"].s.decode())


def _reduce_scatter(site: _Site) -> None:
    axis = int(site.clones.constant(site.node, 2))
    for group in site.groups():
        result = site.reduced(group, site.node.attr["reduce_op"].s.decode())
        parts = site.split(result, axis, len(group), site.host(group))
        for replica, part in zip(group, parts, strict=True):
            site.give(replica, part)


def _all_to_all(site: _Site) -> None:
    attr = site.node.attr
    for group in site.groups():
        axis, count = attr["split_dimension"].i, attr["split_count"].i
        cut = [site.split(site.rows[r][0], axis, count, site.device(r)) for r in group]
        for place, replica in enumerate(group):
            received = [parts[place] for parts in cut]
            device = site.device(replica)
            site.give(replica, site.joined(received, attr["concat_dimension"].i, device))


def _collective_permute(site: _Site) -> None:
    pairs = site.clones.constant(site.node, 1).tolist()
    source_of = {target: source for source, target in pairs}
    if len(source_of) < len(pairs):
        raise EmulationError(
            f"CollectivePermute {site.node.name!r} cannot be emulated: in its pairs {pairs} a"
            " replica is the target of two"
        )
    for replica in range(len(site.rows)):
        if replica in source_of:
            value = site.rows[source_of[replica]][0]
        else:
            # Who is nobody's target receives zeros.
            inputs = (site.rows[replica][0],)
            value = f"{site.op('ZerosLike', inputs, site.device(replica), T=site.dtype)}:y:0"
        site.give(replica, value)


def _all_gather(site: _Site) -> None:
    found = all_gather_module.read(site.node.attr["module"].s.decode(errors="replace"))
    if found is None:
        raise EmulationError(
            f"{site.node.op} {site.node.name!r} cannot be emulated: it holds a StableHLO program"
            " that is not known here"
        )
    for group in found.groups:
        operands = [site.rows[replica][0] for replica in group]
        whole = site.joined(operands, 0, site.host(group))
        for replica in group:
            site.give(replica, whole)


COLLECTIVES: dict[str, Callable[[_Site], None]] = {
    "CrossReplicaSum": _cross_replica_sum,
    "XlaAllReduce": _xla_all_reduce,
    "XlaReduceScatter": _reduce_scatter,
    "AllToAll": _all_to_all,
    "CollectivePermute": _collective_permute,
    "XlaCallModule": _all_gather,
}


def emulate(clones: Clones, node: Any) -> None:
    """Adds plain ops that do what a collective does.

    Args:
        clones: The copies, for all replicas of the group, that the collective connects.
        node: Its NodeDef, of a type in `COLLECTIVES`.

    Raises:
        EmulationError: Its replica groups are computed or incomplete, or it reduces in a way that
            is not known.
    """
    COLLECTIVES[node.op](_Site(clones, node))
