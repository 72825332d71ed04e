"""Writes branches that apply reduced gradients out: both are computed, and one result is selected.

    if finite: w -= g          w = select(finite, w - g, w)

Where a program reduces its gradients before a branch and applies them in it, the reduction and the
update then stand in one graph, and the analysis sees a plain update. No replica waits for another:
what replicas exchange stands outside of any branch, and a branch's predicate is a value like others
that must be the same on all of them. Not a bit differs: what is not selected is thrown away, and a
variable whose branch is not taken is written with what it held.

Only what may run in vain is written out (see `speculation`); other branches stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.calls import BRANCHES, is_call
from tf_wu_shard.graph.nodes import waiting, with_values
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.tpu.ops import PROGRAM
from tf_wu_shard.program.called_graph import CalledGraph, Shape
from tf_wu_shard.program.flat_functions import FlatFunctions
from tf_wu_shard.program.fused_values import restored, stand_in
from tf_wu_shard.program.lifting import HandleNeededError, taking_values
from tf_wu_shard.program.reduced_operands import branches_with_reduced_operands
from tf_wu_shard.program.specialise import Specialiser
from tf_wu_shard.program.speculation import RunsInVainError, check_shapes
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.gradient_shapes import ensured_shapes, with_ensured
from tf_wu_shard.step.variable_values import values_of


def if_converted(
    graph: CalledGraph,
    captured: Captured,
    program: str,
    sums: Callable[[GraphView], Iterable[CarriedReduction]],
) -> Captured:
    """The same function, the branches that apply reduced gradients written out.

    What stands in a branch may not be known to fail or not before it stands in the step: there the
    shapes of what it is handed are proved, and gradients have those of the variables that they are
    seen to update. So all branches are written out, and those that may not be are left out of the
    next round.

    Args:
        graph: The function.
        captured: Its graph and variables.
        program: Name of the TPU program in it, or "" where there is none, or all is inside of one.
        sums: Finds its gradient reductions.

    Returns:
        The view to work on; `captured` itself where no branch is written out.
    """
    view = captured.view
    if not any(op.type in BRANCHES for op in view):
        return captured
    carried = tuple(sums(view))
    branches = branches_with_reduced_operands(view, program, carried)
    kept: dict[str, Refusal] = {}
    while True:
        work = _Conversion(graph, captured)
        for op in branches:
            if op.name not in kept:
                work.convert(op)
        known = len(kept) + len(work.kept)
        kept |= work.kept | work.unproved(carried)
        if len(kept) == known:
            changed = kept or work.view is not view
            return replace(captured, view=work.view, kept_branches=kept) if changed else captured


class _Conversion:
    """The function as it becomes, branch by branch.

    Attributes:
        kept: Why branch ops are not written out, by their names.
    """

    def __init__(self, graph: CalledGraph, captured: Captured) -> None:
        self.kept: dict[str, Refusal] = {}
        self._graph = graph
        self._captured = captured
        self._specialiser = Specialiser(graph, captured, stand_in)
        self._nodes: tuple[Any, ...] = tuple(op.node for op in captured.view)
        self._outputs = captured.view.outputs
        self._shapes: dict[str, tuple[Shape, ...]] = {}
        # For each branch op that is written out, what runs in vain where it is not taken, and of
        # that what selects.
        self._in_vain: dict[str, tuple[list[str], frozenset[str]]] = {}
        # For each branch op that is written out, by handle, what accesses that in its place.
        self._instead: dict[str, dict[str, list[str]]] = {}

    def convert(self, op: Op) -> None:
        """Writes one branch op out, where it can be."""
        view = self._captured.view
        taken = {
            slot: view.variables[value.op]
            for slot, value in enumerate(op.inputs)
            if value.op in view.variables
        }
        used, written = self._specialiser.used_and_written(op.node, taken)
        components = {(ref.key, ref.replica) for ref in used.values()}
        shared = all(ref.key in self._captured.variables for ref in used.values())
        if len(components) < len(used) or not shared:
            self.kept[op.name] = refusals.Branches.BRANCH_TAKES_VARIABLE_TWICE.at()
            return
        # What it takes of an earlier branch op is something else by now.
        now = next(node for node in self._nodes if node.name == op.name)
        try:
            node, finals = taking_values(now, used, self._specialiser.writing, written)
            self._replace(op, node, used, finals)
        except HandleNeededError as error:
            self.kept[op.name] = refusals.Branches.BRANCH_NEEDS_HANDLE.at(function=str(error))
        except RunsInVainError as error:
            self.kept[op.name] = error.refusal

    def _replace(
        self, op: Op, node: Any, used: Mapping[int, VariableRef], finals: Mapping[int, str]
    ) -> None:
        """Puts what a branch op computes, selects and writes in its place.

        Args:
            op: The branch op as it was.
            node: The op as it takes the values of variables and hands new ones back; changed here.
            used: Its operands that are variables.
            finals: For each of those that it may write, the result that is the new value.

        Raises:
            RunsInVainError: If it must not run where it is not taken.
        """
        reads, writes = [], []
        shapes = {}
        instead: dict[str, list[str]] = {}
        waits = _Waits(self._captured.view, op, self._instead)
        for slot, ref in used.items():
            handle = node.input[slot]
            controls = waits.of(handle)
            read = self._like(node, f"{node.name}/wu_shard_read_{slot}", READ, ref)
            read.input.extend([handle, *controls])
            reads.append(read)
            shapes[read.name] = (ref.shape,)
            instead[handle] = [read.name]
            if slot in finals:
                name = f"{node.name}/wu_shard_write_{slot}"
                write = self._like(node, name, "AssignVariableOp", ref)
                write.input.extend([handle, finals[slot], f"^{read.name}", *controls])
                writes.append(write)
                instead[handle] = [write.name]
            node.input[slot] = read.name
        idle = _idle_after(self._captured.view, op)
        nodes = [n for n in self._nodes if n.name != node.name and n.name not in idle]
        adopt: Callable[[Any], None] = lambda new: _adopt(new, node)  # noqa: E731
        functions = FlatFunctions(self._specialiser.functions, adopt)
        out = functions.write_out(
            [*nodes, *reads, node, *writes], {node.name}, self._graph, self._outputs
        )
        handles = {
            (r.key, r.replica): (read.input[0], r)
            for read, r in zip(reads, used.values(), strict=True)
        }
        fused = restored(out.nodes, handles, {read.input[0]: read.name for read in reads}, adopt)
        self._nodes = tuple(
            waiting(n, [write.name for write in writes])
            if n.name == node.name
            else with_values(n, fused.values)
            for n in fused.nodes
        )
        ended = {old: fused.values.get(new, new) for old, new in out.values.items()}
        self._outputs = tuple(ended.get(v, v) for v in self._outputs)
        known = {k: v for k, v in (shapes | out.shapes).items() if k not in fused.gone}
        self._shapes |= known | fused.shapes
        self._in_vain[node.name] = [*out.shapes], out.selections
        self._instead[node.name] = instead

    def _like(self, node: Any, name: str, op: str, ref: VariableRef) -> Any:
        new = tf.compat.v1.NodeDef(name=name, op=op, device=ref.device)
        new.attr["dtype"].type = ref.dtype
        _adopt(new, node)
        return new

    def unproved(self, carried: Sequence[CarriedReduction]) -> dict[str, Refusal]:
        """Why branches must not be written out for the sizes of what they are handed.

        Args:
            carried: The function's gradient reductions.

        Returns:
            The reasons, by the names of the branch ops.
        """
        # A view of the graph at the end takes long to make, and most have no such branch.
        if not self._in_vain or not self._unproved_in(self.view):
            return {}
        # It takes longer to see what gradients update.
        return self._unproved_in(with_ensured(self.view, ensured_shapes(self.view, carried)))

    def _unproved_in(self, view: GraphView) -> dict[str, Refusal]:
        """As `unproved`, where the view knows all shapes that there are to know."""
        found: dict[str, Refusal] = {}
        for name, (in_vain, selections) in self._in_vain.items():
            try:
                check_shapes(view, in_vain, selections)
            except RunsInVainError as error:
                found[name] = error.refusal
        return found

    @functools.cached_property
    def view(self) -> GraphView:
        """The graph as it is at the end."""
        old, known = self._captured.view, self._shapes
        if not self._in_vain:
            return old
        return old.with_graph(
            graph_def_of(self._nodes, old.graph_def),
            shape_of=lambda value: known[value.op][value.index] if value.op in known else None,
            outputs=self._outputs,
        )


class _Waits:
    """What the accesses wait for that take a branch op's place.

    The branch op waits for the accesses of all its variables. An access of one of them that waits
    for the writes of the others, as theirs do for its own, stands in a cycle as soon as two writes
    of each become one. So it waits for those of its own alone, unless some of them order it by way
    of others only.
    """

    def __init__(
        self, view: GraphView, op: Op, instead: Mapping[str, Mapping[str, list[str]]]
    ) -> None:
        """Looks at what a branch op waits for.

        Args:
            view: The graph.
            op: The branch op, as it was.
            instead: For each branch op that was written out before, by handle, what accesses that
                in its place.
        """
        self._view = view
        self._op = op
        self._instead = instead
        # What all of them wait for, and what only those of one variable do, by its handle.
        self._always: list[str] = []
        self._own: dict[str, list[str]] = {}
        for name in op.controls:
            if name in instead:
                for handle, others in instead[name].items():
                    self._own.setdefault(handle, []).extend(others)
            elif is_call(view.ops[name].type) or not (taken := _taken(view, view.ops[name])):
                self._always.append(name)
            else:
                for handle in taken:
                    self._own.setdefault(handle, []).append(name)

    def of(self, handle: str) -> list[str]:
        """The control inputs of an access of one of the variables, by its handle."""
        seen = values_of(self._view, handle).seen_by(self._op.name)
        earlier = [read.name for read in seen.reads if read.position < self._op.position]
        if self._everything.issuperset([*seen.after, *earlier]):
            own = self._own.get(handle, [])
            return [f"^{name}" for name in dict.fromkeys((*self._always, *own))]
        return [f"^{name}" for name in self._op.controls]

    @functools.cached_property
    def _everything(self) -> frozenset[str]:
        return frozenset(self._op.controls)


def _taken(view: GraphView, op: Op) -> set[str]:
    """The variables that an op takes, by their handles."""
    return {value.op for value in op.inputs if value.op in view.variables}


def _idle_after(view: GraphView, op: Op) -> set[str]:
    """The ops behind an op that nobody needs: what a branch returns is always given a name."""
    behind = {op.name}
    for other in view:
        if other.name not in view.live and not behind.isdisjoint(other.sources):
            behind.add(other.name)
    return behind - {op.name}


def _adopt(new: Any, node: Any) -> None:
    """Lets a new node run where another does."""
    new.device = new.device or node.device
    if PROGRAM in node.attr:
        new.attr[PROGRAM].CopyFrom(node.attr[PROGRAM])
