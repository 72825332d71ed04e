"""What programs and their host do to variables that live in shards on TPUs: reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import REPLICATED_INPUT
from tf_wu_shard.rules.variables import READ, WRITES, Access
from tf_wu_shard.step.accesses import VariableAccess, accesses
from tf_wu_shard.weight_update.rewrite.callees import calls_on_shards

# The reads and writes of each variable, by key, in the order of the view.
Accessed = dict[str, list[Op]]


class Host(NamedTuple):
    """What the host does to variables in shards.

    Attributes:
        handles: For each placeholder of the whole of one, by name, its key.
        components: Those of them that are one replica's component; they can be read.
        shards: For each placeholder of a shard, captured for a callee, by name, the key.
        turn: The place of an op in the trace; that of an op of a program is the program's.
    """

    handles: Mapping[str, str]
    components: frozenset[str] = frozenset()
    shards: Mapping[str, str] = {}
    turn: Callable[[Op], int] = lambda op: op.position


class DoneToShards(NamedTuple):
    """Everything that is done to variables in shards, by their keys.

    Attributes:
        inside: By TPU programs.
        outside: By the host.
        calls: By calls on the host whose callees take the shards, by name: whether one may write.
    """

    inside: Accessed
    outside: Accessed
    calls: Mapping[str, Mapping[str, bool]]

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to redirect, and no order to keep between calls."""
        alone = all(len(own) < 2 for own in self.calls.values())
        return not self.inside and not self.outside and alone

    def writers(self, known: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """For each variable that is written, the ops that do it, in their order.

        Args:
            known: Others that do so, which come first.
        """
        found = {key: list(names) for key, names in known.items()}
        writes = [
            *((key, op.name, op.type in WRITES) for key, op in _each(self.inside)),
            *((key, op.name, op.type in WRITES) for key, op in _each(self.outside)),
            *((key, *call) for key, own in self.calls.items() for call in own.items()),
        ]
        for key, name, may_write in writes:
            if may_write:
                found.setdefault(key, []).append(name)
        return found


def done_to_shards(view: GraphView, keys: Container[str], host: Host) -> DoneToShards:
    """Everything that a graph does to variables in shards.

    Args:
        view: The graph.
        keys: The variables in shards.
        host: How the host gets at them.

    Raises:
        StorageError: If one is used otherwise than by reading and writing its value.
    """
    calls = calls_on_shards(view, host.shards)
    return DoneToShards(_in_programs(view, keys, host), _on_host(view, host), calls)


def _each(accessed: Accessed) -> Iterator[tuple[str, Op]]:
    return ((key, op) for key, ops in accessed.items() for op in ops)


def _in_programs(view: GraphView, keys: Container[str], host: Host) -> Accessed:
    found: Accessed = {}
    for handle, ref in view.variables.items():
        if ref.key in keys and handle not in host.handles:
            own = _plain(ref.key, accesses(view, handle))
            if own:
                found.setdefault(ref.key, []).extend(own)
    return found


def _on_host(view: GraphView, host: Host) -> Accessed:
    found: Accessed = {}
    for placeholder, key in host.handles.items():
        own = _plain(key, [a for a in accesses(view, placeholder) if a.op.type != REPLICATED_INPUT])
        if placeholder in host.components and any(op.type != READ for op in own):
            raise StorageError(
                f"the function writes one replica's component of variable {key!r}, which lives in"
                " shards; write the variable itself"
            )
        if own:
            found.setdefault(key, []).extend(own)
    return found


def _plain(key: str, found: list[VariableAccess]) -> list[Op]:
    """The reads and writes among the accesses of a variable.

    Raises:
        StorageError: If there are others.
    """
    for access in found:
        op = access.op
        if op.type == READ or op.type in WRITES or access.access is Access.PASSED_ON:
            continue
        where = f"the function's op {op.name!r} ({op.type})"
        if is_call(op.type):
            raise StorageError(
                f"{where} hands variable {key!r}, which lives in shards, to a function that cannot"
                " be redirected to them; read the variable's value outside of that function and"
                " hand it that, or trace it before the variable is sharded"
            )
        raise StorageError(
            f"{where} uses variable {key!r}, which lives in shards, in a way that its shards do"
            " not allow; read or assign the variable's value instead"
        )
    return [a.op for a in found if a.op.type == READ or a.op.type in WRITES]
