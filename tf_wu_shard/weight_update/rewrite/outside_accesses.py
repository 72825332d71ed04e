"""What a graph does to variables in shards outside of their sharded updates, and in which order.

A component's or a program's accesses of a variable are ordered by control edges. On shards more is
to be ordered: a read on one replica also sees what the others write, and a call whose callee was
redirected to the shards when it was traced takes the shards' own handles, of which the edges of the
variable's handle know nothing. So accesses go in rounds: all reads before the i-th writes, then the
i-th writes.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tf_wu_shard.dtypes import VARIANT
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.calls import all_named_by, is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import REPLICATED_INPUT
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ, Access
from tf_wu_shard.rules.writes import is_plain_write
from tf_wu_shard.step.accesses import VariableAccess, accesses


@dataclasses.dataclass(frozen=True)
class InShards:
    """The variables of a graph that live in shards.

    Attributes:
        layouts: How each is cut, by its key.
        copies: How many copies of the replicas' program the graph has of each, by key; 1 where it
            is not said.
        callees: For each placeholder of a shard, captured for a callee, the variable's key.
        host: For each placeholder that the host of TPU programs has of one, the variable's key.
        components: Those of them that are one replica's component; they can be read.
        writers: Calls that write shards of each, by key, beside those that take `callees`.
        turn: The place of an op in the trace, and that in the trace of a function which was written
            out; that of an op of a program is the program's.
        accessed: For a call that takes shards of a variable, and its key, whose copies it accessed
            before: it comes in the order of their accesses.
    """

    layouts: Mapping[str, AnyLayout]
    copies: Mapping[str, int] = dataclasses.field(default_factory=dict)
    callees: Mapping[str, str] = dataclasses.field(default_factory=dict)
    host: Mapping[str, str] = dataclasses.field(default_factory=dict)
    components: frozenset[str] = frozenset()
    writers: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    turn: Callable[[Op], tuple[int, ...]] = lambda op: (op.position,)
    accessed: Callable[[Op, str], Collection[int]] = lambda op, key: range(sys.maxsize)


@dataclasses.dataclass(frozen=True)
class OutsideAccess:
    """One access of a variable.

    Attributes:
        key: The variable.
        op: A read, a write, or what takes the shards: a call, or what was written out of one.
        copy: The number of the copy of the replicas' program that the op is in.
        is_on_host: Whether it is outside of the TPU programs of its graph.
        takes_shards: Whether the op takes the shards, so that it stays as it is.
        after: Names of the accesses that it comes after, as far as they matter to it: the writes
            of the round before, and for a write the reads of its own.
    """

    key: str
    op: Op
    copy: int
    is_on_host: bool
    takes_shards: bool = False
    after: tuple[str, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether the op is a plain read of the whole."""
        return self.op.type == READ and not self.takes_shards

    @property
    def is_write(self) -> bool:
        """Whether the op is a plain write of the whole."""
        return is_plain_write(self.op.type) and not self.takes_shards


def outside_accesses(view: GraphView, held: InShards) -> list[OutsideAccess]:
    """Finds them, those of a variable in their order.

    Args:
        view: The graph.
        held: What of it lives in shards.

    Returns:
        The accesses; none where nothing is to be redirected or put in order.

    Raises:
        StorageError: If a variable is used otherwise than by reading and writing its value.
    """
    plain: dict[str, list[OutsideAccess]] = {}
    for access in _plain(view, held):
        plain.setdefault(access.key, []).append(access)
    takers = _takers(view, held.callees)
    found: list[OutsideAccess] = []
    for key in dict.fromkeys([*plain, *takers]):
        taking = takers.get(key, ())
        if key not in plain and not _is_by_two_ways(taking):
            continue
        called = dict.fromkeys(held.writers.get(key, ()), True)
        for _, taker in taking:
            for name in _running(view, taker.op, key):
                called[name] = called.get(name, False) or not taker.access.is_read
        copies = [[a for a in plain.get(key, ()) if a.copy == n] for n in _copies(key, held)]
        for number, copy in enumerate(copies):
            own = (view.ops[n] for n in called if number in held.accessed(view.ops[n], key))
            copy += [
                OutsideAccess(key, op, number, is_on_host=True, takes_shards=True) for op in own
            ]
            copy.sort(key=lambda access: (held.turn(access.op), access.op.position))
        writing = {name for name, may_write in called.items() if may_write}
        found += _in_rounds(key, copies, writing)
    return found


def _copies(key: str, held: InShards) -> range:
    return range(held.copies.get(key, 1))


def _plain(view: GraphView, held: InShards) -> list[OutsideAccess]:
    """The reads and writes, those of a handle in the order of the view."""
    found: list[OutsideAccess] = []
    for handle, ref in view.variables.items():
        if ref.key in held.layouts and handle not in held.host:
            found += [
                OutsideAccess(ref.key, op, ref.replica, is_on_host=False)
                for op in _of_handle(view, handle, ref.key)
            ]
    for handle, key in held.host.items():
        ops = _of_handle(view, handle, key)
        if handle in held.components and any(op.type != READ for op in ops):
            raise StorageError(
                f"the function writes one replica's component of variable {key!r}, which lives in"
                " shards; write the variable itself"
            )
        found += [OutsideAccess(key, op, 0, is_on_host=True) for op in ops]
    return found


def _of_handle(view: GraphView, handle: str, key: str) -> list[Op]:
    found = []
    for access in accesses(view, handle):
        op = access.op
        if op.type == READ or is_plain_write(op.type):
            found.append(op)
        elif access.access is not Access.PASSED_ON and op.type != REPLICATED_INPUT:
            raise StorageError(_against(op, key))
    return found


def _against(op: Op, key: str) -> str:
    where = f"the function's op {op.name!r} ({op.type})"
    if all_named_by(op.node):
        return (
            f"{where} hands variable {key!r}, which lives in shards, to a function that cannot be"
            " redirected to them; read the variable's value outside of that function and hand it"
            " that, or trace it before the variable is sharded"
        )
    return (
        f"{where} uses variable {key!r}, which lives in shards, in a way that its shards do not"
        " allow; read or assign the variable's value instead"
    )


def _takers(
    view: GraphView, callees: Mapping[str, str]
) -> dict[str, list[tuple[str, VariableAccess]]]:
    """What calls do to shards of each variable, by key, each with the placeholder of the shard."""
    found: dict[str, list[tuple[str, VariableAccess]]] = {}
    for placeholder, key in callees.items():
        for access in accesses(view, placeholder):
            found.setdefault(key, []).append((placeholder, access))
    return found


def _running(view: GraphView, op: Op, key: str) -> list[str]:
    """Names of the ops that run a function which an op takes shards for.

    That is the op itself, but for a dataset: who goes through its elements runs the function.

    Raises:
        StorageError: If elements are taken after this: nothing orders that.
    """

    def described(op: Op) -> list[Value]:
        results = () if is_call(op.type) else view.results(op.name)
        return [value for value in results if view.dtype(value) == VARIANT]

    def further(value: Value) -> list[Value]:
        return [more for taker, _ in view.consumers(value) for more in described(taker)]

    datasets = described(op)
    if not datasets:
        return [op.name]
    found = []
    for value in reachable(datasets, further):
        for taker, _ in view.consumers(value):
            if taker.type == "MakeIterator":
                raise StorageError(
                    f"an iterator of dataset {op.name!r}, which uses variable {key!r}, is made in a"
                    " function that uses the variable, too; it lives in shards, and nothing says"
                    " which comes first: read it outside of the dataset"
                )
            if not described(taker):
                found.append(taker.name)
    return found


def _is_by_two_ways(takers: Iterable[tuple[str, VariableAccess]]) -> bool:
    """Whether calls take the shards of a variable by handles that do not tell their order.

    One takes them one by one and another all as one. TensorFlow puts accesses of one handle in
    order, but for reads, and does not know that these are the same.
    """
    ways: dict[str, dict[str, bool]] = {}
    for placeholder, taker in takers:
        ways.setdefault(taker.op.name, {})[placeholder] = not taker.access.is_read
    return any(
        (any(one.values()) or any(other.values()))
        and not any(one[handle] or other[handle] for handle in one.keys() & other.keys())
        for one, other in itertools.combinations(ways.values(), 2)
    )


def _in_rounds(
    key: str, copies: Sequence[Iterable[OutsideAccess]], writing: set[str]
) -> list[OutsideAccess]:
    """The accesses of a variable, each with those that it comes after.

    Args:
        key: The variable.
        copies: The accesses of each copy, in their order.
        writing: Names of those calls among them that write.

    Raises:
        StorageError: If the copies do not write alike.
    """
    rounds: list[list[list[OutsideAccess]]] = []
    for copy in copies:
        rounds.append([[]])
        for access in copy:
            rounds[-1][-1].append(access)
            if access.is_write or access.op.name in writing:
                rounds[-1].append([])
    if len({len(own) for own in rounds}) > 1:
        raise StorageError(
            f"the function writes only some replicas' components of variable {key!r}, which lives"
            " in shards; assign the variable as a whole"
        )
    found: list[OutsideAccess] = []
    before: tuple[str, ...] = ()
    for number in range(len(rounds[0])):
        is_last = number == len(rounds[0]) - 1
        own = [copy[number] for copy in rounds]
        reads = [access for copy in own for access in (copy if is_last else copy[:-1])]
        writes = [] if is_last else [copy[-1] for copy in own]
        seen = tuple(dict.fromkeys(access.op.name for access in reads))
        found += [dataclasses.replace(access, after=before) for access in reads]
        found += [dataclasses.replace(access, after=(*before, *seen)) for access in writes]
        before = tuple(dict.fromkeys(access.op.name for access in writes))
    return found
