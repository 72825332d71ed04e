"""The group of a strategy's collectives, as those that a graph has already show it.

A collective op needs the size and key of its group, the order token of its device, and an instance
key that no other collective of the group has: those are counted when the function is called, by an
input that Python code fills in. All of it is copied from a collective of the strategy's own, so
that nothing of the strategy is asked.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from tf_wu_shard.dtypes import INT32
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.tensorflow_private.call_time_inputs import CALL_TIME
from tf_wu_shard.tensorflow_private.worker_group import key_between_nodes

_NCCL = b"nccl"

# What carries a gradient, or the numbers of entries of a sparse one, and shows the group.
_SHOWING = ("CollectiveReduceV2", "CollectiveGatherV2")


@dataclasses.dataclass(frozen=True)
class Member:
    """What one replica's device takes part in collectives with.

    Attributes:
        device: The device.
        size: The number of members: a value of the graph, or the number.
        key: The group's key, likewise.
        instance: The input that an instance key comes by; each collective needs one of its own.
        tokens: What orders the collectives of the device.
        attributes: Those that every collective has: hint, timeout, number of tokens.
        by_nccl: Whether NCCL carries them out, see `runs_by_nccl`.
        instances: Numbers the keys that the device takes; its memberships share them.
    """

    device: str
    size: Value | int
    key: Value | int
    instance: str
    tokens: tuple[Value, ...]
    attributes: dict[str, Any]
    by_nccl: bool
    instances: Iterator[int] = dataclasses.field(default_factory=itertools.count, compare=False)

    def collective(
        self, at: Emitter, op_type: str, operand: Value, name: str, **attributes: Any
    ) -> Value:
        """Adds a collective of the group.

        Args:
            at: Where to emit; it runs on the member's device.
            op_type: Which.
            operand: What the member contributes.
            name: Its name.
            attributes: Those of this op type alone.

        Returns:
            Its result.
        """
        own = at.on(self.device)
        instance = self._key_of_instance(own, name)
        inputs = [operand, *map(own.value, (self.size, self.key)), instance, *self.tokens]
        return own.op(op_type, inputs, name, **self.attributes, **attributes)

    def stand_aside(self, at: Emitter, name: str) -> None:
        """Takes a key for a collective that another replica of the process takes part in for all.

        TensorFlow counts keys for each device, and takes the n-th of one for the n-th of each
        other when all of them take part in a collective.

        Args:
            at: Where to emit.
            name: The collective's name.
        """
        self._key_of_instance(at.on(self.device), name)

    def _key_of_instance(self, own: Emitter, name: str) -> Value:
        """An input for a key that no other collective has."""
        key = own.op("Placeholder", [], f"{name}/instance_key", dtype=INT32, shape=())
        # The n-th key that one member takes is the n-th of each other.
        own.builder.nodes[-1].attr[CALL_TIME].list.s.append(self.instance.encode())
        own.builder.nodes[-1].attr[CALL_TIME].list.i.append(next(self.instances))
        return key


def group_of(view: GraphView, sums: Sequence[CarriedReduction]) -> tuple[Member, ...]:
    """The group that sums over replicas are collectives of.

    Args:
        view: The graph.
        sums: What was recognised in it.

    Returns:
        Per replica its member; none where no sum is a collective whose instance key is counted at
        each call of this function, or of the one whose loop it is the body of.
    """
    for reduction in sums:
        members = [_member(view, name) for name in reduction.carriers]
        found = tuple(member for member in members if member is not None)
        if len(found) == len(reduction.operands):
            return found
    return ()


def between_nodes(view: GraphView, group: Sequence[Member], size: int) -> tuple[Member, ...]:
    """Each replica's membership in the group of those of its place, one in each process.

    Its instance keys are those of the replica's membership in the group of all: no two collectives
    of a device have the same one.

    Args:
        view: The graph.
        group: The replicas of this process, in the group of all.
        size: How many processes there are.

    Returns:
        Per replica its member; none where the graph does not say the key of the group of all.
    """
    found = []
    for place, member in enumerate(group):
        key = view.integers(member.key) if isinstance(member.key, Value) else (member.key,)
        if not key:
            return ()
        found.append(dataclasses.replace(member, size=size, key=key_between_nodes(key[0], place)))
    return tuple(found)


def _member(view: GraphView, name: str) -> Member | None:
    op = view.ops[name]
    if op.type not in _SHOWING:
        return None
    _, size, key, instance, *tokens = op.inputs
    if CALL_TIME not in view.ops[instance.op].node.attr:
        return None
    hint = op.attribute("communication_hint").s
    attributes = {
        "communication_hint": hint,
        "timeout_seconds": op.attribute("timeout_seconds").f,
        "is_stateless": False,
    }
    by_nccl = runs_by_nccl(hint, op.device)
    return Member(op.device, size, key, instance.op, tuple(tokens), attributes, by_nccl)


def runs_by_nccl(hint: bytes, device: str) -> bool:
    """Whether NCCL carries collectives of a hint out on a device; elsewhere TensorFlow's ring does.

    Args:
        hint: The attribute `communication_hint`.
        device: The device.
    """
    return hint == _NCCL and "GPU" in device
