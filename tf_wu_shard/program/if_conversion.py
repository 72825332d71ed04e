"""Writes branches that apply reduced gradients out: both are computed, and one result is selected.

    if finite: w -= g          w = select(finite, w - g, w)

Where a program reduces its gradients before a branch and applies them in it, the reduction and the
update then stand in one graph, and the analysis sees a plain update. No replica waits for another:
what replicas exchange stands outside of any branch, and a branch's predicate is a value like others
that must be the same on all of them. Not a bit differs: what is not selected is thrown away, and a
variable whose branch is not taken is written with what it held.

Only what may run in vain is written out (see `speculation`). Of a branch that does more than that,
what may is taken out (see `branch_parts`), and the rest stays a branch; others stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import (
    BRANCHES,
    IFS,
    callee_names,
    is_call,
)
from tf_wu_shard.graph.nodes import waiting, with_values
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.tpu.ops import PROGRAM
from tf_wu_shard.program.branch_op import called_by, values_of
from tf_wu_shard.program.branch_parts import Parts, in_two, rest_of
from tf_wu_shard.program.branch_waits import Waits
from tf_wu_shard.program.called_graph import CalledGraph, Shape
from tf_wu_shard.program.compiled_calls import compiled_in
from tf_wu_shard.program.flat_functions import FlatFunctions, Places, WrittenOut
from tf_wu_shard.program.fused_values import ended_in_place, restored, stand_in
from tf_wu_shard.program.lifting import HandleNeededError, taking_values
from tf_wu_shard.program.reduced_operands import calling_with_reduced_operands
from tf_wu_shard.program.remaining_nodes import Following, RemainingNodes
from tf_wu_shard.program.specialise import Specialiser
from tf_wu_shard.program.speculation import RunsInVainError, unproved
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.gradient_shapes import ensured_shapes, with_ensured


def if_converted(
    graph: CalledGraph,
    captured: Captured,
    program: str,
    sums: Callable[[GraphView], Iterable[CarriedReduction]],
    *,
    in_parts: bool = True,
    recompiled: bool | None = None,
) -> Captured:
    """The same function, the branches that apply reduced gradients written out.

    What stands in a branch may not be known to fail or not before it stands in the step: there the
    shapes of what it is handed are proved, and gradients have those of the variables that they are
    seen to update. So all branches are written out, and what of them may not be is left in branches
    in the next round.

    Args:
        graph: The function.
        captured: Its graph and variables.
        program: Name of the TPU program in it, or "" where there is none, or all is inside of one.
        sums: Finds its gradient reductions.
        in_parts: Whether a part of a branch may be written out, the rest staying a branch.
        recompiled: Whether what XLA compiles of what branches call is handed to it again in the
            end; None where it compiles the whole program.

    Returns:
        The view to work on; `captured` itself where no branch is written out.
    """
    view = captured.view
    if not view.of_types(*BRANCHES):
        return captured
    carried = tuple(sums(view))
    branches = calling_with_reduced_operands(view, program, carried, BRANCHES)
    if not branches:
        return captured
    specialiser, following = Specialiser(graph, captured, stand_in), Following(view)
    # For each branch op, what of it is not to run in vain.
    staying: dict[str, Places] = {}
    # Those to whose branches no list of rows is handed.
    without_lists: set[str] = set()
    while True:
        work = _Conversion(
            graph, captured, specialiser, following, in_parts, recompiled, without_lists
        )
        for op in branches:
            work.convert(op, staying.get(op.name, {}))
        more = work.written_out_too_far(carried)
        if not more:
            kept = captured.kept_branches | work.kept
            return replace(work.converted, kept_branches=kept)
        for name, found in more.items():
            if None in found and name not in without_lists:
                # It is a selection; one of a table is known where no branch is handed its rows.
                without_lists.add(name)
                staying.pop(name, None)
                continue
            known = staying.get(name, {})
            # What is seen again is not where it was looked for.
            again = not known.keys().isdisjoint(found)
            staying[name] = known | found | ({None: next(iter(found.values()))} if again else {})


class _Conversion:
    """The function as it becomes, branch by branch.

    Attributes:
        kept: Why branch ops are not written out, by their names.
    """

    def __init__(
        self,
        graph: CalledGraph,
        captured: Captured,
        specialiser: Specialiser,
        following: Following,
        in_parts: bool,
        recompiled: bool | None,
        without_lists: Set[str],
    ) -> None:
        self._without_lists = without_lists
        self._in_parts = in_parts
        self._recompiled = recompiled
        self.kept: dict[str, Refusal] = {}
        self._graph = graph
        self._captured = captured
        self._specialiser = specialiser
        self._remaining = RemainingNodes(captured.view, following)
        # Names of the functions that whole branches called.
        self._written_out: frozenset[str] = captured.written_out
        self._shapes: dict[str, tuple[Shape, ...]] = {}
        # For each branch op that is written out, what runs in vain where it is not taken.
        self._in_vain: dict[str, WrittenOut] = {}
        # Names of what selected what variables hold already.
        self._in_place = frozenset[str]()
        # For each branch op that is written out, by handle, what accesses that in its place.
        self._instead: dict[str, dict[str, list[str]]] = {}

    def convert(self, op: Op, staying: Places) -> None:
        """Writes one branch op out, or what of it can be.

        Args:
            op: The op.
            staying: What of it must not run in vain.
        """
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
        now = self._remaining.by_name[op.name]
        why = next(iter(staying.values()), None)
        if why is None:
            why = self._whole(op, now, used, written)
        if why is not None:
            may_be = self._in_parts and None not in staying
            in_part = may_be and self._in_part(op, now, taken, staying)
            self.kept[rest_of(op.name) if in_part else op.name] = why

    def _of_lists(self, op: Op) -> bool:
        """Whether a branch op may get lists of rows; XLA knows none of as many as it turns out."""
        if op.type not in IFS or op.name in self._without_lists:
            return False
        return self._recompiled is not None and not compiled_in(op.node)

    def _whole(
        self, op: Op, now: Any, used: Mapping[int, VariableRef], written: Sequence[int]
    ) -> Refusal | None:
        """Writes a branch op out; why that cannot be, or None where it can."""
        try:
            node, finals = taking_values(now, used, self._specialiser.writing, written)
            self._replace(op, Parts(node, finals, used), self._of_lists(op))
            self._written_out |= called_by(self._captured.view, op)
        except HandleNeededError as error:
            return refusals.Branches.BRANCH_NEEDS_HANDLE.at(function=str(error))
        except RunsInVainError as error:
            return error.refusal
        return None

    def _in_part(self, op: Op, now: Any, taken: Mapping[int, VariableRef], staying: Places) -> bool:
        """Writes out what may be of a branch op that is not written out; whether there is any."""
        # What is taken for a list may turn out to be none where it is no variable's any more.
        for of_lists in (True, False) if self._of_lists(op) else (False,):
            try:
                parts = in_two(now, self._graph, taken, self._specialiser, staying, of_lists)
                if parts is not None:
                    self._replace(op, parts, of_lists)
            except (HandleNeededError, RunsInVainError):
                continue
            return parts is not None
        return False

    def _replace(self, op: Op, parts: Parts, of_lists: bool) -> None:
        """Puts what a branch op computes, selects and writes in its place.

        Args:
            op: The branch op as it was.
            parts: What is written out of it, which is changed here, and what stays.
            of_lists: Whether its branches may be handed lists of rows, all or none.

        Raises:
            RunsInVainError: If it must not run where it is not taken.
        """
        node, finals, used = parts.apart, parts.finals, parts.used
        reads, writes = [], []
        shapes: dict[str, tuple[Shape, ...]] = {}
        instead: dict[str, list[str]] = {}
        components: dict[tuple[str, int], tuple[str, VariableRef]] = {}
        before: dict[str, str] = {}
        waits = Waits(self._captured.view, op, self._instead)
        for slot, ref in used.items():
            handle = node.input[slot]
            controls = waits.of(handle)
            read = self._like(node, f"{node.name}/wu_shard_read_{slot}", READ, ref)
            read.input.extend([handle, *controls])
            reads.append(read)
            shapes[read.name] = (ref.shape,)
            instead[handle] = [read.name]
            components[ref.key, ref.replica] = (handle, ref)
            before[handle] = read.name
            if slot in finals:
                name = f"{node.name}/wu_shard_write_{slot}"
                write = self._like(node, name, "AssignVariableOp", ref)
                write.input.extend([handle, finals[slot], f"^{read.name}", *controls])
                writes.append(write)
                instead[handle] = [write.name]
            node.input[slot] = read.name
        # What came after the branch comes after all that it did, be that to look.
        done = [name for names in instead.values() for name in names]
        stays = []
        taken = self._remaining.taken_of(op)
        if parts.rest is not None:
            # What the branch changes, the part that is written out reads before.
            rest = waiting(parts.rest, [read.name for read in reads])
            rest = waiting(rest, [w.name for w in writes] if parts.observes else ())
            whole = self._captured.view.results(op.name)
            shapes[rest.name] = tuple(self._captured.view.shape(value) for value in whole)
            taken, moved = [], {value: Value(rest.name, value.index) for value in whole}
            stays.append(rest)
            done.append(rest.name)
            for slot in parts.held:
                instead.setdefault(str(op.inputs[slot]), []).append(rest.name)
        adopt: Callable[[Any], None] = lambda new: _adopt(new, node)  # noqa: E731
        made = self._specialiser.functions
        functions = FlatFunctions(made, adopt, recompiled=self._recompiled)
        out = functions.write_out(
            [*stays, *reads, node, *writes],
            {node.name},
            self._graph,
            taken,
            values_of(node, {*used}, self._captured.view) if of_lists else (),
            around=self._remaining.by_name,
        )
        fused = restored(out.nodes, components, before, adopt, out.select)
        now = [
            waiting(n, done) if n.name == node.name else with_values(n, fused.values)
            for n in fused.nodes
        ]
        ended, in_place = ended_in_place(now, [w.name for w in writes], fused.held, before)
        self._in_place |= in_place
        if parts.rest is None:
            moved = {old: fused.values.get(new, new) for old, new in out.values.items()}
        self._remaining.replace(op, ended, moved, effects_wait=bool(writes))
        known = {k: v for k, v in (shapes | out.shapes).items() if k not in fused.gone}
        self._shapes |= known | fused.shapes
        self._in_vain[node.name] = out
        self._instead[node.name] = instead

    def _like(self, node: Any, name: str, op: str, ref: VariableRef) -> Any:
        new = tf.compat.v1.NodeDef(name=name, op=op, device=ref.device)
        new.attr["dtype"].type = ref.dtype
        _adopt(new, node)
        return new

    def written_out_too_far(self, carried: Sequence[CarriedReduction]) -> dict[str, Places]:
        """What should not be written out, as the sizes of what it is handed are not proved.

        Args:
            carried: The function's gradient reductions.

        Returns:
            By the names of the branch ops, where that stands and why.
        """
        # A view of the graph at the end takes long to make, and most have no such branch.
        if not self._in_vain or not self._unproved_in(self.converted.view):
            return {}
        # It takes longer to see what gradients update.
        view = self.converted.view
        return self._unproved_in(with_ensured(view, ensured_shapes(view, carried)))

    def _unproved_in(self, view: GraphView) -> dict[str, Places]:
        """As `written_out_too_far`, where the view knows all shapes that there are to know."""
        found: dict[str, Places] = {}
        for name, out in self._in_vain.items():
            known = out.of_lists | self._in_place
            in_vain = [op for op in out.shapes if op not in known]
            selections = out.selections - self._in_place
            for op, why in unproved(view, in_vain, selections).items():
                found.setdefault(name, {}).setdefault(out.place(name, op), why)
        return found

    @functools.cached_property
    def converted(self) -> Captured:
        """The function as it is at the end."""
        if not self._in_vain:
            return self._captured
        nodes = tuple(self._remaining.by_name.values())
        called = {n for node in nodes if is_call(node.op) for n in callee_names(node)}
        made = {n: f for n, f in self._specialiser.functions.items() if n in called}
        known = self._shapes
        before = replace(self._captured, written_out=self._written_out)
        return before.with_nodes(
            nodes,
            self._captured.functions | made,
            shape_of=lambda value: known[value.op][value.index] if value.op in known else None,
            outputs=self._remaining.outputs,
        )


def _adopt(new: Any, node: Any) -> None:
    """Lets a new node run where another does."""
    new.device = new.device or node.device
    if PROGRAM in node.attr:
        new.attr[PROGRAM].CopyFrom(node.attr[PROGRAM])
