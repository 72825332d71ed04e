"""Which ops wait, so that replicas begin their steps one after the other (see `plan.staggering`).

A replica begins where it takes its batch. It may wait for another's gradients only where none of
these needs anything of it, by an edge or by an op in which replicas wait for each other.

It waits until sums hold the other's gradients, not only until they are computed: what a replica
begins with would be run before the sums, as TensorFlow runs first what became ready last.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_wu_shard.dtypes import RESOURCE
from tf_wu_shard.graph.calls import all_named_by
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.step.reductions import GradientReduction

_BATCHES = frozenset({"IteratorGetNext", "Placeholder"})

# What may have an effect, and waits for no other replica.
_WAIT_FOR_NOBODY = frozenset(
    {
        *("IteratorGetNext", "Placeholder", "Assert", "NoOp"),
        *("StatefulPartitionedCall", "If", "Case", "While"),
        *("RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"),
        *("Multinomial", "RandomGamma", "RandomPoissonV2", "RandomShuffle"),
        *("StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniform"),
        *("StatefulUniformFullInt", "StatefulUniformInt", "RngReadAndSkip", "RngSkip"),
        *("ReadVariableOp", "VarHandleOp", "VariableShape", "ResourceGather", *WRITES),
    }
)

# A node behind one of these may never run, and who waits for it neither.
_MAY_NOT_RUN = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter", "Merge", "RefMerge"})


@dataclasses.dataclass(frozen=True)
class Stagger:
    """What keeps replicas from beginning all at once.

    Attributes:
        gradients: Per copy of the program, the ops that compute what it adds to sums.
        begins: Per copy, the ops that take its batch, and what they take of it.
    """

    gradients: tuple[tuple[str, ...], ...]
    begins: tuple[Mapping[str, tuple[Value, ...]], ...]


def stagger(
    view: GraphView, reductions: Iterable[GradientReduction], devices: Sequence[str]
) -> Stagger | None:
    """What is to wait for what, for replicas to begin one after the other.

    Args:
        view: The graph before the rewrite.
        reductions: The gradient reductions of all its updates.
        devices: Per copy of the program, its device.

    Returns:
        None where it is not proved that no replica waits for a later one. One may wait for earlier
        ones: calls of functions with random numbers come in the order in which they were traced.
    """
    operands = [r.operands for r in reductions]
    gradients = [
        tuple(dict.fromkeys(v.op for v in values)) for values in zip(*operands, strict=True)
    ]
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
        if _may_block(view, op.type) or any(map(blocks, all_named_by(op.node))):
            return None
        for value in op.inputs:
            needed[value.op] |= bits
        for name in op.controls:
            needed[name] |= bits
        own = copies.get(op.device)
        batch = tuple(value for value in op.inputs if _is_batch(view, value))
        if own is not None and batch:
            if bits & ((1 << own) - 1):
                return None
            begins[own][op.name] = batch
    return Stagger(tuple(gradients), tuple(begins)) if all(begins[1:]) else None


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
    if op_type in _MAY_NOT_RUN:
        return True
    return op_type not in _WAIT_FOR_NOBODY and view.is_stateful(op_type)


def _function_may_block(view: GraphView, name: str) -> bool:
    """The same of any op of a function, or of those that it calls."""

    def named(name: str) -> Iterable[str]:
        function = view.functions.get(name)
        return [n for node in function.node_def for n in all_named_by(node)] if function else ()

    functions = [view.functions.get(n) for n in reachable([name], named)]
    return any(
        function is None or any(_may_block(view, node.op) for node in function.node_def)
        for function in functions
    )
