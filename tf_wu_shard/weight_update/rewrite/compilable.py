"""What of the regions of a graph XLA can compile, and with whom: one region on one device.

What it may not round otherwise than the ops do stays, and what would be copied for it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, parse_value
from tf_wu_shard.program.compiled_calls import compiled_in
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.compiled import CAN_COMPILE, can_compile
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import is_plain_write
from tf_wu_shard.weight_update.rewrite.left_to_grappler import divides_by_root, left_to_grappler
from tf_wu_shard.weight_update.rewrite.result import Region

_RELABELS = frozenset(("Reshape", "Identity"))


class Group(NamedTuple):
    """Where ops may be compiled together: one region on one device."""

    region: int
    device: str


def compilable(
    nodes: Iterable[Any], regions: Iterable[Region]
) -> tuple[tuple[Region, ...], dict[str, Refusal]]:
    """What of some regions XLA can compile.

    Args:
        nodes: The NodeDefs of the graph.
        regions: Of each, all ops that were emitted.

    Returns:
        Those of the regions of which it is to compile something, with those of their ops; and for
        the others, by name, why it is not.
    """
    given = [*regions]
    if not given:
        return (), {}
    by_name = _LazyOps(nodes)
    chosen: dict[int, list[Op]] = collections.defaultdict(list)
    for name, group in _groups(by_name, given).items():
        chosen[group.region].append(by_name[name])
    found, left_open = [], {}
    for number, region in enumerate(given):
        if is_worth_it(chosen[number], region):
            ops = frozenset(op.name for op in chosen[number])
            found.append(dataclasses.replace(region, ops=ops))
        elif region.exact and divides_by_root([by_name[name] for name in region.ops], by_name):
            left_open[region.name] = refusals.Compiling.DIVIDES_BY_ROOT.at()
        else:
            left_open[region.name] = refusals.Compiling.FEW_OPS.at()
    return tuple(found), left_open


class _LazyOps(dict[str, Op]):
    """The ops of a graph by name, each made when it is asked for; most never are."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        super().__init__()
        self._nodes = {node.name: node for node in nodes}

    def __missing__(self, name: str) -> Op:
        node = self._nodes[name]
        values = tuple(parse_value(text) for text in node.input if text[0] != "^")
        controls = tuple(text[1:] for text in node.input if text[0] == "^")
        # Nobody asks in which order they are.
        made = self[name] = Op(name, node.op, values, controls, node.device, -1, node)
        return made

    def readers_of(self, names: Set[str]) -> dict[str, list[str]]:
        """The ops that compute with the first result of others, by these others' names."""
        found: dict[str, list[str]] = {name: [] for name in names}
        for reader, node in self._nodes.items():
            for text in node.input:
                if text in found:
                    found[text].append(reader)
        return found


def is_worth_it(ops: Iterable[Op], region: Region) -> bool:
    """Whether ops are compiled together: one that computes something is no faster alone.

    Where XLA compiled it before, its bits may be XLA's.
    """
    computed = sum(op.type not in (*_RELABELS, READ, "Const") for op in ops)
    return computed > (0 if region.as_asked_for else 1)


def _groups(by_name: _LazyOps, regions: Sequence[Region]) -> dict[str, Group]:
    """For each op that may be compiled, by name, with whom."""
    members = {name: i for i, region in enumerate(regions) for name in region.ops}
    exact = [region.ops for region in regions if region.exact]
    stays = left_to_grappler(exact, by_name) if exact else frozenset[str]()
    found: dict[str, Group] = {}
    reads: list[Op] = []
    for name, number in members.items():
        member, region = by_name[name], regions[number]
        if name in stays or member.device not in region.variables:
            continue
        if member.type == READ:
            reads.append(member)
        elif _may_compile(member, by_name, region):
            found[name] = Group(number, member.device)
    readers = by_name.readers_of({read.name for read in reads})
    for read in reads:
        number = members[read.name]
        if read.inputs[0].op in regions[number].handles:
            found[read.name] = Group(number, read.device)
    while True:
        # What else looks at a value takes it as it is read; compiled, it would be copied out.
        kept = {
            name: group
            for name, group in found.items()
            if all(found.get(reader) == group for reader in readers.get(name, ()))
            and not _enters(by_name[name], by_name, found)
        }
        if len(kept) == len(found):
            return kept
        found = kept


def _enters(op: Op, ops: Mapping[str, Op], groups: Mapping[str, Group]) -> bool:
    """Whether an op gives a value another shape or name before anything is computed with it.

    Compiled, it would copy the value, all of a weight perhaps of which others cut a shard.
    """
    while op.type in _RELABELS:
        source = op.inputs[0].op
        if groups.get(source) != groups[op.name]:
            return True
        op = ops[source]
    return False


def _may_compile(op: Op, ops: Mapping[str, Op], region: Region) -> bool:
    if is_plain_write(op.type):
        return op.inputs[0].op in region.handles
    if op.type == "Reshape":
        return ops[op.inputs[1].op].type == "Const"
    if op.type == "Const":
        # With a number that it knows XLA may compute otherwise than with any.
        return region.as_asked_for and bool(compiled_in(op.node))
    if op.type in _RELABELS or (region.as_asked_for and op.type in CAN_COMPILE):
        return True
    types = {attribute.type for attribute in op.node.attr.values() if attribute.type}
    return can_compile(op.type, types, exact=region.exact)
