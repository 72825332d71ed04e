"""What reduced gradients reach, and which of them must be followed together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.registry import Family, family_of, is_of_rows, no_rule
from tf_wu_shard.rules.sparse import BRANCH
from tf_wu_shard.rules.writes import WRITES, is_fused_update, num_written, writes_rows
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.row_branches import depending


@dataclasses.dataclass
class ForwardSlice:
    """What one reduced gradient reaches, or several that reach one variable.

    Attributes:
        keys: The reductions.
        variables: Keys of the variables that are written with them, in the order of the slice.
        refusal: What it could not be followed through, if anything.
        broadcast: Whether it is also made into something larger, of which it is one row or one
            number: there it is no gradient, but what all replicas know.
    """

    keys: set[int]
    variables: list[str]
    refusal: Refusal | None
    broadcast: bool = False


def follow(graph: ReducedGraph) -> list[ForwardSlice]:
    """Follows each reduced gradient forward, on replica 0, to the variables written with it."""
    return ForwardSlicer(graph).slices_from(graph.reductions)


def entangled(slices: list[ForwardSlice]) -> list[ForwardSlice]:
    """Joins slices that share a variable: their updates must be sharded together."""
    owner: dict[str, ForwardSlice] = {}
    joined: list[ForwardSlice] = []
    for slice_ in slices:
        others = {id(owner[v]): owner[v] for v in slice_.variables if v in owner}
        target = slice_
        if others:
            target, *rest = others.values()
            for other in (*rest, slice_):
                target.keys |= other.keys
                target.variables += [v for v in other.variables if v not in target.variables]
                target.refusal = target.refusal or other.refusal
                joined = [f for f in joined if f is not other]
        else:
            joined.append(slice_)
        for variable in target.variables:
            owner[variable] = target
    return joined


def written_keys(view: GraphView, op: Op) -> list[str]:
    """Keys of the variables that an op writes; of an unknown one, the op that yields its handle."""
    refs = [view.variables.get(value.op) for value in op.inputs[: num_written(op.type)]]
    return [ref.key if ref else value.op for ref, value in zip(refs, op.inputs, strict=False)]


class Reached(NamedTuple):
    """What values go into.

    Attributes:
        variables: Keys of the variables that are written with them.
        refusal: Why they cannot be followed to all of these, or None.
        broadcast: Whether they are made into something larger, which is not followed.
        elsewhere: Whether they also go into what is no part of one update.
    """

    variables: list[str]
    refusal: Refusal | None = None
    broadcast: bool = False
    elsewhere: bool = False


class ForwardSlicer:
    """Follows reduced gradients, on replica 0, through ops that have a rule."""

    def __init__(self, graph: ReducedGraph, *, past_weights: bool = True) -> None:
        """Prepares to follow those of a graph.

        Args:
            graph: The graph.
            past_weights: Whether to follow what is written with a weight that was just written,
                such as its moving average.
        """
        self.graph = graph
        self._past_weights = past_weights
        self._view = graph.view
        # What is summed again, and by which op: another gradient, even where updates are made of
        # such ops as well.
        self._summed = {(v, r.carriers[0]) for r in graph.reductions for v in r.operands}
        self._returned = frozenset(graph.view.outputs)

    def slices_from(self, reductions: Sequence[GradientReduction]) -> list[ForwardSlice]:
        """Follows reduced gradients to the variables that are written with them.

        Gradients may be added up for later steps: what a weight takes then is what those before
        left, which is read before the step's own is added. That is followed where nothing else
        leads to the weight.
        """
        slices = [self._slice_from(reduction) for reduction in reductions]
        reached = {variable for slice_ in slices for variable in slice_.variables}
        for slice_, reduction in zip(slices, reductions, strict=True):
            if any(map(self.graph.is_trainable, slice_.variables)):
                continue
            sparse = reduction.gathered is not None
            larger = dataclasses.replace(slice_, variables=[*slice_.variables])
            for key in slice_.variables:
                self._add(larger, self._carried_on(key, slice(1), sparse), sparse)
            added = larger.variables[len(slice_.variables) :]
            if reached.isdisjoint(added):
                slice_.variables, slice_.refusal = larger.variables, larger.refusal
        return slices

    def _slice_from(self, reduction: GradientReduction) -> ForwardSlice:
        """Follows one reduced gradient to the variables that are written with it."""
        sparse = reduction.gathered is not None
        reached = self.reach(self.graph.names.of(reduction.key, 0), sparse)
        refusal = self.against(reduction, reached)
        slice_ = ForwardSlice({reduction.key}, [], refusal, reached.broadcast)
        self._add(slice_, reached.variables, sparse)
        return slice_

    def _add(self, slice_: ForwardSlice, variables: Iterable[str], sparse: bool) -> None:
        """Adds variables to what is reached, and what is written with what was just written."""
        pending = [*variables]
        while pending:
            key = pending.pop(0)
            if key in slice_.variables:
                continue
            slice_.variables.append(key)
            if self._handle(key) is None:
                slice_.refusal = slice_.refusal or refusals.Replicas.NOT_MIRRORED.at(key)
            # A later read may carry the update on (Adam reads its moments back).
            pending += self._carried_on(key, slice(1, None), sparse)

    def _carried_on(self, key: str, values: slice, sparse: bool) -> list[str]:
        """Keys of the variables that are written with some values of one, in their order.

        Where a read leads elsewhere, it is simply one from outside.
        """
        handle = self._handle(key)
        if not self._past_weights and self.graph.is_trainable(key):
            return []
        found: list[str] = []
        for value in values_of(self._view, handle).values[values] if handle is not None else ():
            for read in value.whole_reads:
                again = self.reach([Value(read.name)], sparse)
                if again.refusal is None and not again.elsewhere:
                    found += again.variables
        return found

    def _handle(self, key: str) -> str | None:
        return self.graph.handles.get(key, {}).get(0)

    def against(self, reduction: GradientReduction, reached: Reached) -> Refusal | None:
        """Why a reduced gradient, which goes where it was followed to, cannot be sharded."""
        if reduction.gathered is Gathered.SHAPE:
            # Anything may be made of the table's shape, which is no secret of a shard.
            return None
        if reduction.gathered is None and reduction.size is None:
            return refusals.Updates.GRADIENT_SHAPE_OPEN.at(reduction.carriers[0])
        return reached.refusal

    def reach(self, start: Iterable[Value], sparse: bool) -> Reached:
        """Follows what is computed from values.

        Args:
            start: The values.
            sparse: Whether they are of a sparse gradient, which may also pass through ops on rows.
        """
        view = self._view
        found: list[str] = []
        refusal: Refusal | None = None
        broadcast = False
        stack = list(start)
        seen = set(stack)
        while stack:
            value = stack.pop(0)
            if value in self._returned:
                refusal = refusal or refusals.Updates.GRADIENT_RETURNED.at(value.op)
            for op, slot in view.consumers(value):
                if (value, op.name) in self._summed:
                    continue
                if not sparse and is_broadcast(view, value, op, slot):
                    broadcast = True
                    continue
                if op.type in WRITES:
                    refusal = refusal or _against_write(op, slot, sparse)
                    found.extend(written_keys(view, op))
                    continue
                if sparse and (op.type == BRANCH or is_of_rows(op.type)):
                    results = _row_results(view, op, slot)
                    stack += [v for v in results if v not in seen]
                    seen.update(results)
                    continue
                if family_of(op.type) is None:
                    refusal = refusal or no_rule(op.type, op.name)
                    continue
                if family_of(op.type) is Family.SUM:
                    # The same on every replica from here on, whatever it goes into.
                    continue
                result = op.result_of(slot)
                if result not in seen:
                    seen.add(result)
                    stack.append(result)
        return Reached(found, refusal, broadcast)


def is_broadcast(view: GraphView, value: Value, op: Op, slot: int) -> bool:
    """Whether an op makes something larger of a value, of which that is one row or one number.

    Args:
        view: The graph.
        value: The value.
        op: One of its consumers.
        slot: The operand that it enters by.
    """
    own, result = view.shape(value), _size_used_in(view, op, slot)
    return own is not None and result is not None and math.prod(own) < result


def _size_used_in(view: GraphView, op: Op, slot: int) -> int | None:
    """How many elements what an op makes has; None where it takes its operand as it is."""
    shape = None
    if is_fused_update(op.type) and slot != WRITES[op.type].operand:
        ref = view.variables.get(op.inputs[0].op)
        shape = None if ref is None else ref.shape
    elif family_of(op.type) is Family.ELEMENTWISE:
        shape = view.shape(op.result_of(slot))
    return None if shape is None else math.prod(shape)


def _row_results(view: GraphView, op: Op, slot: int) -> Sequence[Value]:
    """The results of an op on rows that depend on one of its operands."""
    if op.type == BRANCH:
        return [Value(op.name, number) for number in sorted(depending(view, op, slot))]
    return view.results(op.name)


def _against_write(op: Op, slot: int, sparse: bool) -> Refusal | None:
    if writes_rows(op.type):
        return None if sparse else no_rule(op.type, op.name)
    if slot == WRITES[op.type].operand:
        return None
    return refusals.Updates.OTHER_OPERAND.at(op.name, op_type=op.type, slot=slot)
