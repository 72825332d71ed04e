"""Which ops wait, so that replicas begin their steps one after the other (see `plan.staggering`).

A replica begins where it takes its batch. It may wait for another's gradients only where none of
these needs anything of it, by an edge or by an op in which replicas wait for each other. That is
asked of the rewritten graph: what is gathered needs all replicas, and so does a pack of gradients.

It waits until sums hold the other's gradients, not only until they are computed: what a replica
begins with would be run before the sums, as TensorFlow runs first what became ready last.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_wu_shard.dtypes import RESOURCE, item_bytes
from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.calls import all_named_by, reached_from
from tf_wu_shard.graph.nodes import sources_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import WRITES

_NEXT = "IteratorGetNext"
_BATCHES = frozenset({_NEXT, "Placeholder"})

# What may have an effect, and waits for no other replica.
_WAIT_FOR_NOBODY = frozenset(
    {
        *("Placeholder", "Assert", "NoOp"),
        *("StatefulPartitionedCall", "If", "Case", "While"),
        *("RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"),
        *("Multinomial", "RandomGamma", "RandomPoissonV2", "RandomShuffle"),
        *("StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniform"),
        *("StatefulUniformFullInt", "StatefulUniformInt", "RngReadAndSkip", "RngSkip"),
        *("ReadVariableOp", "VarHandleOp", "VariableShape", "ResourceGather", *WRITES),
    }
)

# A node behind one of the first may never run, and who waits for it neither. The others wait for
# other callers though TensorFlow calls them stateless.
_REFUSED = frozenset(
    {
        *("Switch", "RefSwitch", "Enter", "RefEnter", "Merge", "RefMerge"),
        *("PyFuncStateless", "Batch", "BatchFunction"),
    }
)


@dataclasses.dataclass(frozen=True)
class Stagger:
    """What keeps replicas from beginning all at once.

    Attributes:
        sums: Per copy of the program, the ops that have run when sums hold its gradients.
        begins: Per copy, the ops that take its batch, and what they take of it.
    """

    sums: Sequence[Sequence[str]]
    begins: Sequence[Mapping[str, Sequence[Value]]]


def before_gradients(
    view: GraphView, gradients: Sequence[Sequence[Value]], nodes: Iterable[Any]
) -> GraphView:
    """The part of a rewritten graph that `stagger` asks: all before gradients and before batches.

    Args:
        view: The graph before it was rewritten.
        gradients: Per copy of the program, what it adds to sums.
        nodes: The NodeDefs of the rewritten graph.
    """
    by_name = {node.name: node for node in nodes}

    def sources(name: str) -> Iterable[str]:
        node, old = by_name.get(name), view.ops.get(name)
        if node is None:
            return ()
        if old is not None and old.node is node:
            return old.sources
        return sources_of(node)

    start = [value.op for own in gradients for value in own]
    start += [op.name for op in view if op.type == _NEXT]
    found = {*reachable(start, sources)}
    kept = (node for name, node in by_name.items() if name in found)
    return view.with_graph(graph_def_of(kept, view.graph_def), outputs=(), control_outputs=())


def stagger(
    view: GraphView,
    gradients: Sequence[Sequence[Value]],
    devices: Sequence[str],
    nodes: Iterable[Any],
) -> Stagger | None:
    """What is to wait for what, for replicas to begin one after the other.

    Args:
        view: The rewritten graph, see `before_gradients`.
        gradients: Per copy of the program, what it adds to sums.
        devices: Per copy, its device.
        nodes: The NodeDefs of the graph that the rewrite added, each after what it takes.

    Returns:
        None where it is not proved that no replica waits for a later one, and that each computes
        its gradients from a batch smaller than these. A replica may wait for earlier ones: calls of
        functions with random numbers come in the order in which they were traced.
    """
    names = [tuple(dict.fromkeys(value.op for value in own)) for own in gradients]
    if any(name not in view.ops for own in names for name in own):
        return None
    begins = _begins(view, names, devices)
    if begins is None or not _begin_with_batches(view, names, begins):
        return None
    for own, taken in zip(gradients, begins, strict=True):
        batch = dict.fromkeys(value for values in taken.values() for value in values)
        # Who is handed gradients, to clip and apply them, cannot be kept from computing them.
        if _known_bytes(view, batch) >= _known_bytes(view, own):
            return None
    return Stagger(summed(names, nodes), begins)


def _begins(
    view: GraphView, gradients: Sequence[Sequence[str]], devices: Sequence[str]
) -> list[dict[str, tuple[Value, ...]]] | None:
    """Per copy, what takes its batch; None where another copy may wait for that."""
    # A bit for each copy that needs an op for its gradients.
    needed = dict.fromkeys(view.ops, 0)
    for copy, names in enumerate(gradients):
        for name in names:
            needed[name] |= 1 << copy
    begins: list[dict[str, tuple[Value, ...]]] = [{} for _ in devices]
    copies = {device: copy for copy, device in enumerate(devices)}
    blocks = functools.cache(functools.partial(_function_may_block, view))
    for op in reversed(tuple(view)):
        bits = needed[op.name]
        if not bits:
            continue
        if op.type != _NEXT and _may_block(view, op.type):
            return None
        if any(map(blocks, all_named_by(op.node))):
            return None
        for name in op.sources:
            needed[name] |= bits
        own = copies.get(op.device)
        batch = tuple(value for value in op.inputs if _is_batch(view, value))
        if own is not None and batch:
            if bits & ((1 << own) - 1):
                return None
            begins[own][op.name] = batch
    return begins


def _begin_with_batches(
    view: GraphView,
    gradients: Sequence[Sequence[str]],
    begins: Sequence[Mapping[str, object]],
) -> bool:
    """Whether all gradients of a copy come behind its batch, and no batch is taken behind one.

    The shards of one iterator wait for each other to be read.
    """
    copy_of = {name: copy for copy, own in enumerate(begins) for name in own}
    # A bit for each copy whose batch an op comes behind.
    behind: dict[str, int] = {}
    for op in view:
        bits = 0
        for name in op.sources:
            bits |= behind.get(name, 0)
        if bits and op.type == _NEXT:
            return False
        if op.name in copy_of:
            bits |= 1 << copy_of[op.name]
        behind[op.name] = bits
    return all(behind[name] >> copy & 1 for copy, own in enumerate(gradients) for name in own)


def _known_bytes(view: GraphView, values: Iterable[Value]) -> int:
    """The bytes of the values whose shapes are known."""
    shaped = ((view.shape(value), value) for value in values)
    return sum(
        math.prod(shape) * item_bytes(view.dtype(value))
        for shape, value in shaped
        if shape is not None
    )


def summed(gradients: Sequence[Iterable[str]], nodes: Iterable[Any]) -> list[list[str]]:
    """What is computed of gradients of the replicas up to each, as far as these suffice.

    Args:
        gradients: Per copy of the program, the ops that compute what it adds to sums.
        nodes: The NodeDefs that the rewrite adds, each after what it takes.

    Returns:
        Per copy, the last ops that need gradients of it, of earlier copies and nothing else: sums
        so far, or gradients that none holds yet.
    """
    latest = {name: copy for copy, own in enumerate(gradients) for name in own}
    taken: set[str] = set()
    for node in nodes:
        # What waits for an op ("^") needs more than gradients, and is not known by such a name.
        sources = [text.partition(":")[0] for text in node.input]
        known = latest.keys() >= {*sources} if sources else node.op == "Const"
        if not known:
            continue
        copy = max((latest[source] for source in sources), default=-1)
        latest[node.name] = copy
        taken.update(source for source in sources if latest[source] == copy)
    found: list[list[str]] = [[] for _ in gradients]
    for name, copy in latest.items():
        if copy >= 0 and name not in taken:
            found[copy].append(name)
    return found


def _is_batch(view: GraphView, value: Value) -> bool:
    return view.producer(value).type in _BATCHES and view.dtype(value) != RESOURCE


def _may_block(view: GraphView, op_type: str) -> bool:
    """Whether an op may wait for another replica, or not run at all."""
    if op_type in _REFUSED:
        return True
    return op_type not in _WAIT_FOR_NOBODY and view.is_stateful(op_type)


def _function_may_block(view: GraphView, name: str) -> bool:
    """The same of any op of a function, or of those that it calls."""
    functions = [view.functions.get(n) for n in reached_from([name], view.functions)]
    return any(
        function is None or any(_may_block(view, node.op) for node in function.node_def)
        for function in functions
    )
