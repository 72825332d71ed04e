"""What programs and their host do to variables that live in shards on TPUs: reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import REPLICATED_INPUT
from tf_wu_shard.rules.variables import READ, WRITES, Access
from tf_wu_shard.step.accesses import VariableAccess, accesses

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


def in_programs(view: GraphView, keys: Container[str], host: Host) -> Accessed:
    """What TPU programs do to them.

    Args:
        view: The graph.
        keys: The variables in shards.
        host: How the host gets at them.

    Raises:
        StorageError: If one is used otherwise than by reading and writing its value.
    """
    found: Accessed = {}
    for handle, ref in view.variables.items():
        if ref.key in keys and handle not in host.handles:
            own = _plain(ref.key, accesses(view, handle))
            if own:
                found.setdefault(ref.key, []).extend(own)
    return found


def on_host(view: GraphView, host: Host) -> Accessed:
    """What the host does to them; see `in_programs`."""
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
