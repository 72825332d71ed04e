"""Brings all that a program does to chosen variables to its top, as reads and plain writes.

The last resort for variables that live in shards and are used otherwise than piece by piece: a
branch that divides a weight by its norm, a loop that trains with an update that cannot be shared.
Branches, loops and functions take the whole value and hand the new one back, and what looks parts
of a variable up looks them up in its value. What is left are reads, which can be gathered, and
writes, of which each replica keeps its part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.nodes import copy_of, waiting
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.grounds.tpu.ops import PROGRAM
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.fused_values import OnValues
from tf_wu_shard.program.lifting import HandleNeededError, taking_values
from tf_wu_shard.program.specialise import Specialiser
from tf_wu_shard.program.value_ops import is_write, on_value
from tf_wu_shard.rules.variables import READ, WRITES, Access
from tf_wu_shard.step.accesses import (
    BRANCHES,
    access_by_callee,
    callees,
    first_argument,
    is_call,
)
from tf_wu_shard.step.capture import Captured


def functionalized(
    graph: Any,
    captured: Captured,
    handles: Mapping[str, VariableRef],
    fused: OnValues | None = None,
) -> Captured:
    """The same function, whose ops read and write chosen variables as whole values.

    Functions that the host calls were redirected to the shards when they were traced.

    Args:
        graph: The FuncGraph.
        captured: Its graph and variables.
        handles: The variables, by the names of the ops that yield their handles.
        fused: Does with values what fused updates do. Where it is given, the branches are brought
            to the top that stand in no program, and only they.

    Returns:
        The view to work on; `captured` itself where nothing is to be done. What cannot be brought
        to the top stays as it is.
    """
    work = _Functionalizing(graph, captured, handles, fused)
    return work.result() if work.run() else captured


class _Functionalizing:
    def __init__(
        self,
        graph: Any,
        captured: Captured,
        handles: Mapping[str, VariableRef],
        fused: OnValues | None,
    ) -> None:
        self._captured = captured
        self._handles = handles
        self._specialiser = Specialiser(TracedGraph(graph), captured, fused)
        self._branches_alone = fused is not None
        self._nodes: list[Any] = []
        self._shapes: dict[str, tuple[int, ...] | None] = {}
        # For each op that hands new values back, the writes that follow it.
        self._writes: dict[str, list[str]] = {}

    def run(self) -> bool:
        """Does it; whether there was anything."""
        changed = False
        for op in self._captured.view:
            node = self._after_writes(op.node)
            taken = {
                slot: self._handles[text]
                for slot, text in enumerate(node.input)
                if text in self._handles
            }
            redirected = self._redirected(node, taken) if taken else None
            changed = changed or redirected is not None
            self._nodes += redirected if redirected is not None else [node]
        return changed

    def _after_writes(self, node: Any) -> Any:
        """A node that also waits for the writes that follow what it waits for."""
        waits = [w for text in node.input for w in self._writes.get(text.removeprefix("^"), ())]
        waits = waits if any(text.startswith("^") for text in node.input) else []
        return waiting(node, dict.fromkeys(waits))

    def _redirected(self, node: Any, taken: Mapping[int, VariableRef]) -> list[Any] | None:
        if is_call(node.op):
            return self._call(node, taken)
        if self._branches_alone:
            return None
        if node.op == READ or node.op in WRITES or list(taken) != [0] or node.op == "Identity":
            return None
        read = _read(node, 0, taken[0])
        self._shapes[read.name] = taken[0].shape
        if not is_write(node.op):
            redirected = on_value(node, read.name, taken[0])
            return None if redirected is None else [read, *redirected]
        changed = copy_of(node)
        changed.name = f"{node.name}/wu_shard_value"
        redirected = on_value(changed, read.name, taken[0]) or []
        write = _like(node, node.name, "AssignVariableOp", taken[0])
        write.input.extend([node.input[0], changed.name, f"^{read.name}"])
        write.input.extend(text for text in node.input if text.startswith("^"))
        return [read, *redirected, write]

    def _call(self, node: Any, taken: Mapping[int, VariableRef]) -> list[Any] | None:
        if node.op not in BRANCHES if self._branches_alone else PROGRAM not in node.attr:
            return None
        used = {slot: ref for slot, ref in taken.items() if self._uses(node, slot)}
        components = {(ref.key, ref.replica) for ref in used.values()}
        if not used or len(components) < len(used):
            return None
        written = [slot for slot in used if self._specialiser.may_write(node, slot)]
        try:
            new, values = taking_values(node, used, self._specialiser.writing, written)
        except HandleNeededError:
            return None
        reads, writes = [], []
        for slot, ref in used.items():
            read = _read(node, slot, ref)
            new.input[slot] = read.name
            self._shapes[read.name] = ref.shape
            reads.append(read)
        for slot, value in values.items():
            write = _like(
                node, f"{node.name}/wu_shard_write_{slot}", "AssignVariableOp", used[slot]
            )
            write.input.extend([node.input[slot], value, f"^{node.name}/wu_shard_read_{slot}"])
            writes.append(write)
        self._writes[node.name] = [write.name for write in writes]
        return [*reads, new, *writes]

    def _uses(self, node: Any, slot: int) -> bool:
        argument = slot - first_argument(node.op)
        names = [name for _, listed in callees(node.op, node.attr) for name in listed]
        functions = self._captured.view
        return argument >= 0 and any(
            access_by_callee(functions, name, argument) is not Access.PASSED_ON for name in names
        )

    def result(self) -> Captured:
        """The function as it is now."""
        old = self._captured
        graph_def = graph_def_of(self._nodes, old.view.graph_def)
        functions = self._specialiser.functions
        made = (f for name, f in functions.items() if name not in old.functions)
        graph_def.library.function.extend(function.definition for function in made)
        writes = (name for names in self._writes.values() for name in names)
        view = old.view.with_graph(graph_def, self._shapes, writes)
        return dataclasses.replace(old, view=view, functions=functions)


def _read(node: Any, slot: int, ref: VariableRef) -> Any:
    """A read of an operand that stands just before a node."""
    read = _like(node, f"{node.name}/wu_shard_read_{slot}", READ, ref)
    read.input.append(node.input[slot])
    read.input.extend(text for text in node.input if text.startswith("^"))
    return read


def _like(node: Any, name: str, op: str, ref: VariableRef) -> Any:
    device = "" if PROGRAM in node.attr else ref.device
    new = tf.compat.v1.NodeDef(name=name, op=op, device=device)
    new.attr["dtype"].type = ref.dtype
    if PROGRAM in node.attr:
        new.attr[PROGRAM].CopyFrom(node.attr[PROGRAM])
    return new
