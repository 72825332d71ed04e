"""Brings all that a program does to chosen variables to its top, as reads and plain writes.

The last resort for variables that live in shards and are used otherwise than piece by piece: a
branch that divides a weight by its norm, a loop that trains with an update that cannot be shared.
Branches, loops and functions take the whole value and hand the new one back, and what looks parts
of a variable up looks them up in its value. What is left are reads, which can be gathered, and
writes, of which each replica keeps its part.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.dtypes import BOOL, RESOURCE, VARIANT
from tf_wu_shard.graph.builder import result_types
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.nodes import control_inputs, copy_of, waiting
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.grounds.tpu.ops import PROGRAM
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.fused_values import OnValues
from tf_wu_shard.program.lifting import HandleNeededError, taking_values
from tf_wu_shard.program.specialise import Specialiser
from tf_wu_shard.program.value_ops import is_write, on_value
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import is_plain_write
from tf_wu_shard.step.capture import Captured


def functionalized(
    graph: Any,
    captured: Captured,
    handles: Mapping[str, VariableRef],
    fused: OnValues | None = None,
    apart: Mapping[tuple[str, str], int] | None = None,
) -> Captured:
    """The same function, whose ops read and write chosen variables as whole values.

    Functions that the host calls were redirected to the shards when they were traced.

    Args:
        graph: The FuncGraph.
        captured: Its graph and variables.
        handles: The variables, by the names of the ops that yield their handles.
        fused: Does with values what ops do that need handles. Where it is given, branches and
            loops are brought to the top that stand in no program; else what stands in one.
        apart: By the name of an `If` and a variable's key, the number of the branch after which the
            variable is written; the other one has seen to that itself.

    Returns:
        The view to work on; `captured` itself where nothing is to be done. What cannot be brought
        to the top stays as it is.
    """
    work = _Functionalizing(graph, captured, handles, fused, apart or {})
    if not work.run():
        return captured
    return captured.with_nodes(
        work.nodes,
        work.specialiser.functions,
        shape_of=lambda value: work.shapes.get(value.op),
        control_outputs=(*captured.view.control_outputs, *itertools.chain(*work.writes.values())),
    )


class _Functionalizing:
    """The function as it becomes.

    Attributes:
        nodes: Its nodes.
        specialiser: Has the functions that were made for it.
        shapes: Those of what was added, by name.
        writes: For each op that hands new values back, the writes that follow it.
    """

    def __init__(
        self,
        graph: Any,
        captured: Captured,
        handles: Mapping[str, VariableRef],
        fused: OnValues | None,
        apart: Mapping[tuple[str, str], int],
    ) -> None:
        self._captured = captured
        self._handles = handles
        self.specialiser = Specialiser(TracedGraph(graph), captured, fused)
        self._fused = fused
        self._apart = apart
        self.nodes: list[Any] = []
        self.shapes: dict[str, tuple[int, ...] | None] = {}
        self.writes: dict[str, list[str]] = {}

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
            self.nodes += redirected if redirected is not None else [node]
        return changed

    def _after_writes(self, node: Any) -> Any:
        """A node that also waits for the writes that follow what it waits for."""
        waits = [w for text in node.input for w in self.writes.get(text.removeprefix("^"), ())]
        waits = waits if control_inputs(node) else []
        return waiting(node, dict.fromkeys(waits))

    def _redirected(self, node: Any, taken: Mapping[int, VariableRef]) -> list[Any] | None:
        if is_call(node.op):
            return self._call(node, taken)
        if node.op == READ or is_plain_write(node.op) or node.op == "Identity":
            return None
        if self._fused is not None and (list(taken) != [0] or is_write(node.op)):
            return self._with_handles(node, taken, self._fused)
        if list(taken) != [0]:
            return None
        read = self._read(node, 0, taken[0])
        if not is_write(node.op):
            redirected = on_value(node, read.name, taken[0])
            if redirected is None and self._fused is not None:
                return self._with_handles(node, taken, self._fused)
            return None if redirected is None else [read, *redirected]
        changed = copy_of(node)
        changed.name = f"{node.name}/wu_shard_value"
        redirected = on_value(changed, read.name, taken[0]) or []
        write = _like(node, node.name, "AssignVariableOp", taken[0])
        write.input.extend([node.input[0], changed.name, f"^{read.name}"])
        write.input.extend(control_inputs(node))
        return [read, *redirected, write]

    def _with_handles(
        self, node: Any, taken: Mapping[int, VariableRef], fused: OnValues
    ) -> list[Any] | None:
        """An op that needs handles: what it left in the variables is written to them after it."""
        if not {RESOURCE, VARIANT}.isdisjoint(result_types(node)):
            # It is used by whoever goes through it: a dataset whose functions take the handles.
            return None
        reads = {slot: self._read(node, slot, ref) for slot, ref in taken.items()}
        done = fused(node, {slot: read.name for slot, read in reads.items()}, taken)
        if done is None:
            return None
        return [*reads.values(), *done[0], *self._written(node, taken, done[1])]

    def _read(self, node: Any, slot: int, ref: VariableRef) -> Any:
        """A read of an operand that stands just before a node."""
        read = _like(node, f"{node.name}/wu_shard_read_{slot}", READ, ref)
        read.input.append(node.input[slot])
        read.input.extend(control_inputs(node))
        self.shapes[read.name] = ref.shape
        return read

    def _written(
        self, node: Any, refs: Mapping[int, VariableRef], values: Mapping[int, str]
    ) -> list[Any]:
        """The writes that follow a node: whoever waits for it waits for them."""
        added = []
        self.writes[node.name] = []
        for slot, value in values.items():
            name = f"{node.name}/wu_shard_write_{slot}"
            branch = self._apart.get((node.name, refs[slot].key))
            if branch is not None:
                added += self._kept_unless_taken(node, slot, refs[slot], value, branch)
                value = added[-1].name
            write = _like(node, name, "AssignVariableOp", refs[slot])
            write.input.extend([node.input[slot], value, f"^{node.name}/wu_shard_read_{slot}"])
            added.append(write)
            self.writes[node.name].append(name)
        return added

    def _kept_unless_taken(
        self, node: Any, slot: int, ref: VariableRef, value: str, branch: int
    ) -> list[Any]:
        """What a variable is to hold after an `If`: what one branch hands back, or what is there.

        Args:
            node: The `If`; its predicate is a truth value, see `two_ways`.
            slot: The operand that was the variable.
            ref: The variable.
            value: What the branches hand back.
            branch: Which of them is asked.
        """
        scope = f"{node.name}/wu_shard_after_{slot}"
        read = _like(node, scope, READ, ref)
        read.input.extend([node.input[slot], f"^{node.name}"])
        self.shapes[read.name] = ref.shape
        taken = tf.compat.v1.NodeDef(name=f"{scope}/taken", device=ref.device, op="Identity")
        taken.input.append(node.input[0])
        if branch == 0:
            taken.attr["T"].type = BOOL
        else:
            taken.op = "LogicalNot"
        select = tf.compat.v1.NodeDef(name=f"{scope}/value", device=ref.device, op="SelectV2")
        select.input.extend([taken.name, value, read.name])
        select.attr["T"].type = ref.dtype
        self.shapes[select.name] = ref.shape
        return [read, taken, select]

    def _call(self, node: Any, taken: Mapping[int, VariableRef]) -> list[Any] | None:
        if self._fused is None and PROGRAM not in node.attr:
            return None
        used, written = self.specialiser.used_and_written(node, taken)
        components = {(ref.key, ref.replica) for ref in used.values()}
        if not used or len(components) < len(used):
            return None
        try:
            new, values = taking_values(node, used, self.specialiser.writing, written)
        except HandleNeededError:
            return None
        reads = []
        for slot, ref in used.items():
            read = self._read(node, slot, ref)
            new.input[slot] = read.name
            reads.append(read)
        return [*reads, new, *self._written(node, used, values)]


def _like(node: Any, name: str, op: str, ref: VariableRef) -> Any:
    device = "" if PROGRAM in node.attr else ref.device
    new = tf.compat.v1.NodeDef(name=name, op=op, device=device)
    new.attr["dtype"].type = ref.dtype
    if PROGRAM in node.attr:
        new.attr[PROGRAM].CopyFrom(node.attr[PROGRAM])
    return new
