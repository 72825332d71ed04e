"""Branches that do to variables, element by element, what they do to them as wholes.

Such a branch (Keras' overwriting of weights by their averages) does to every shard what it does to
the whole: given the handles of shards it stays as it is.
"""

from __future__ import annotations

import dataclasses

from tf_wu_shard.graph.calls import IFS, callees, first_argument
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import is_in
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.inside import view_inside
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.variables import READ, Access
from tf_wu_shard.rules.writes import is_plain_write
from tf_wu_shard.step.accesses import access_by_callee, accesses
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.single_program import SingleProgram

# For a branch op, by its name, and each variable that it works on so, by key, the keys of those
# that must be cut alike: they meet in one element.
PartWise = dict[str, dict[str, frozenset[str]]]


def with_part_wise(
    graph: CalledGraph, captured: Captured, program: str, num_replicas: int
) -> Captured:
    """The same graph, in whose view such branches are known; see `part_wise`."""
    found = part_wise(graph, captured, program, num_replicas)
    if not found:
        return captured
    return dataclasses.replace(captured, view=captured.view.with_part_wise(found))


def part_wise(graph: CalledGraph, captured: Captured, program: str, num_replicas: int) -> PartWise:
    """Finds the branch ops of a program that write variables so.

    Args:
        graph: The function that holds the TPU program, or a branch or loop of it.
        captured: Its graph, flattened, and variables.
        program: Name of the TPU program, or "" where all of the graph is inside of it.
        num_replicas: How many replicas run the program.
    """
    view = captured.view
    found: PartWise = {}
    agreed = SingleProgram(view, {}, num_replicas)
    for op in view:
        inside = is_in(op.node, program)
        if op.type not in IFS or not inside:
            continue
        if agreed.match(0, op.inputs[0].op, op.inputs[0].op) is not None:
            continue
        together = _of_branches(graph, captured, op, num_replicas)
        if together:
            found[op.name] = together
    return found


def _of_branches(
    graph: CalledGraph, captured: Captured, op: Op, num_replicas: int
) -> dict[str, frozenset[str]]:
    """The variables on which each branch of an op works so or does nothing."""
    view, first = captured.view, first_argument(op.type)
    handles = {
        value.op: slot
        for slot, value in enumerate(op.inputs)
        if value.op in view.variables and view.variables[value.op].key in captured.variables
    }
    groups: list[set[str]] = []
    spoilt: set[str] = set()
    for _, names in callees(op.node):
        for name in names:
            ignored = {
                view.variables[handle].key
                for handle, slot in handles.items()
                if access_by_callee(view, name, slot - first) is Access.PASSED_ON
            }
            touched = {view.variables[handle].key for handle in handles} - ignored
            if not touched:
                continue
            called = graph.inner(name, captured.functions)
            inner = called and view_inside(captured, op, called, name, num_replicas)
            own = _groups(inner, touched, num_replicas) if inner else []
            groups += own
            spoilt |= touched - {key for group in own for key in group}
    merged: list[set[str]] = []
    for group in groups:
        apart = [other for other in merged if not other & group]
        merged = [*apart, group.union(*(other for other in merged if other & group))]
    return {key: frozenset(group) for group in merged if not group & spoilt for key in group}


def _groups(view: GraphView, keys: set[str], num_replicas: int) -> list[set[str]]:
    """The sets of variables that meet in elements of a graph that works on them part by part."""
    handles = {ref.key: name for name, ref in view.variables.items() if ref.key in keys}
    shapes = {key: view.variables[name].shape for key, name in handles.items()}
    program = SingleProgram(view, {}, num_replicas)
    found: list[set[str]] = []
    for key, handle in handles.items():
        group, pending = {key}, [a.op for a in accesses(view, handle)]
        seen: set[str] = set()
        sound = bool(shapes[key])
        while pending and sound:
            op = pending.pop()
            if op.name in seen:
                continue
            seen.add(op.name)
            if op.type == READ or is_plain_write(op.type):
                ref = view.variables.get(op.inputs[0].op)
                sound = ref is not None and ref.key in handles and shapes[ref.key] == shapes[key]
                if sound and ref is not None and ref.key not in group:
                    group.add(ref.key)
                    pending += [a.op for a in accesses(view, handles[ref.key])]
            else:
                sound = family_of(op.type) is Family.ELEMENTWISE or op.type == "Identity"
                sound = sound and view.shape(Value(op.name)) == shapes[key]
            if is_plain_write(op.type):
                sound = sound and program.match(0, op.name, op.name) is None
            if op.type != READ:
                for value in op.inputs[is_plain_write(op.type) :]:
                    shape = view.shape(value)
                    sound = sound and shape in ((), shapes[key])
                    if shape != ():
                        pending.append(view.producer(value))
            sound = sound and Value(op.name) not in view.outputs
            pending += [consumer for consumer, _ in view.consumers(Value(op.name))]
        if sound:
            found.append(group)
    return found
