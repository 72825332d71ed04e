"""Fused updates in functions that take the values of variables.

A fused update needs handles. In a branch that stays a branch it gets those of variables of its own,
which live for one step. In a branch that is written out an `IdentityN` of the values stands for it,
until it stands in the step, where the handles are; there the kernel runs on the variables
themselves, and what it left in them is read:

    if finite: ApplyAdam(w, m, g)        old = w; ApplyAdam(w, m, g); new = w
                                         w = select(finite, new, old)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.graph.builder import GraphBuilder, result_types
from tf_wu_shard.graph.nodes import control_inputs, data_inputs, waiting
from tf_wu_shard.graph.op import Value, attribute_in, parse_value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.grounds.scratch import scratch_variable
from tf_wu_shard.program.row_lists import Select, itself
from tf_wu_shard.program.speculation import RunsInVainError
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import num_written, writes_rows
from tf_wu_shard.tensorflow_private import function_graph

# From the NodeDef of a fused update, and by operand what some of its variables hold, as a NodeDef
# names its operands, and the variables: nodes that do with values what it does, and by operand what
# then is in the variables. None where that cannot be.
OnValues = Callable[
    [Any, Mapping[int, str], Mapping[int, VariableRef]], tuple[list[Any], dict[int, str]] | None
]

# The NodeDef that an IdentityN stands for, and of its variables the keys and components.
_NODE = "_wu_shard_fused"
_KEYS = "_wu_shard_keys"
_REPLICAS = "_wu_shard_replicas"

Component = tuple[str, int]


def on_scratch(
    node: Any, values: Mapping[int, str], refs: Mapping[int, VariableRef]
) -> tuple[list[Any], dict[int, str]] | None:
    """A fused update on variables that live for one step; see `OnValues`."""
    builder = GraphBuilder(())
    at = builder.at(node.device, f"{node.name}/wu_shard")
    inputs = [parse_value(text) for text in data_inputs(node)]
    waits = [text[1:] for text in control_inputs(node)]
    for slot, ref in refs.items():
        if ref.shape is None:
            return None
        value = builder.note(parse_value(values[slot]), ref.dtype)
        inputs[slot], filled = scratch_variable(at, value, ref.shape)
        waits.append(filled)
    # What takes the op's results goes on taking them from it.
    keeps_name = bool(result_types(node))
    own = builder.at(node.device, node.name if keeps_name else f"{node.name}/wu_shard/applied")
    applied = own.like(node, inputs, "", controls=waits)
    after = {
        slot: at.op(READ, [inputs[slot]], "after", controls=[applied.op], dtype=ref.dtype)
        for slot, ref in refs.items()
    }
    left = {slot: str(value) for slot, value in after.items()}
    if keeps_name:
        return builder.nodes, left
    # Ops that waited for the update wait for all of it.
    done = tf.compat.v1.NodeDef(name=node.name, op="NoOp", device=node.device)
    done.input.extend(f"^{value.op}" for value in after.values())
    return [*builder.nodes, done], left


def stand_in(
    node: Any, values: Mapping[int, str], refs: Mapping[int, VariableRef]
) -> tuple[list[Any], dict[int, str]] | None:
    """What stands for a fused update until `restored` puts it back; see `OnValues`."""
    if [*refs] != [*range(num_written(node.op))]:
        return None
    data = data_inputs(node)
    controls = control_inputs(node)
    inputs = [*values.values(), *data[len(values) :], *controls]
    new = tf.compat.v1.NodeDef(name=node.name, op="IdentityN", device=node.device, input=inputs)
    definition = function_graph.op_def(node.op)
    assert definition is not None, f"TensorFlow does not know {node.op}"
    scalars = definition.input_arg[len(values) :]
    types = [arg.type or attribute_in(node.attr, arg.type_attr).type for arg in scalars]
    new.attr["T"].list.type.extend([*(ref.dtype for ref in refs.values()), *types])
    new.attr[_NODE].s = node.SerializeToString()
    new.attr[_KEYS].list.s.extend(ref.key.encode() for ref in refs.values())
    new.attr[_REPLICAS].list.i.extend(ref.replica for ref in refs.values())
    return [new], {slot: str(Value(node.name, slot)) for slot in refs}


def stood_for(node: Any) -> tuple[str, int]:
    """The type of the update that an op stands for, or its own, and how many variables it takes.

    See `row_lists.Meaning`.
    """
    if _NODE not in node.attr:
        return itself(node)
    return tf.compat.v1.NodeDef.FromString(node.attr[_NODE].s).op, len(node.attr[_KEYS].list.s)


@dataclasses.dataclass(frozen=True)
class Restored:
    """Nodes in which fused updates stand again.

    Attributes:
        nodes: The nodes; some are the old ones: not to be changed.
        values: What stands for the results of what stood for the updates.
        shapes: The static shapes of the results of what was added, by name.
        gone: Names of what stood for them.
        held: For each handle of a variable of whose rows some are written, in place and where the
            branch is taken alone: what it holds after that.
    """

    nodes: list[Any]
    values: dict[Value, Value]
    shapes: dict[str, tuple[tuple[int, ...] | None, ...]]
    gone: set[str]
    held: dict[str, Value]


def restored(
    nodes: Sequence[Any],
    handles: Mapping[Component, tuple[str, VariableRef]],
    before: Mapping[str, str],
    adopt: Callable[[Any], None],
    select: Callable[[str], Select],
) -> Restored:
    """Puts the fused updates back.

    Args:
        nodes: NodeDefs, the stand-ins among them; never changed.
        handles: The handle of each variable, as a NodeDef names its operands.
        before: For each handle, the read of what it holds before all of this.
        adopt: Makes a new NodeDef part of the program that the nodes are in.
        select: From the name of what stands for an update of rows, what selects by whether its
            branch is taken.

    Raises:
        RunsInVainError: If two of them are of one variable, and are not of its rows in one branch.
    """
    found = Restored([], {}, {}, set(), {})
    restoring = _Restoring(handles, before, adopt, select, found)
    for node in nodes:
        if _NODE in node.attr:
            restoring.restore(node)
        else:
            found.nodes.append(node)
    return found


def ended_in_place(
    nodes: Sequence[Any],
    writes: Collection[str],
    held: Mapping[str, Value],
    before: Mapping[str, str],
) -> tuple[tuple[Any, ...], frozenset[str]]:
    """Leaves variables as they are that hold already what is written to them in the end.

    Args:
        nodes: NodeDefs, see `Restored.nodes`; never changed.
        writes: Names of those that write variables in the end, each what is selected.
        held: See `Restored.held`.
        before: See `restored`.

    Returns:
        The NodeDefs, for a write that goes a NoOp of its name; and the names of what selected what
        it wrote, which goes too.
    """
    by_name = {node.name: node for node in nodes} if held else {}
    instead: dict[str, Any] = {}
    for write in (by_name[name] for name in writes if held and by_name[name].input[0] in held):
        handle, chosen = write.input[0], by_name.get(parse_value(write.input[1]).op)
        instead[write.name] = waiting(write, [held[handle].op])
        if chosen is None or chosen.op != "SelectV2":
            continue
        selected = {*map(parse_value, chosen.input[1:])}
        if selected == {held[handle], Value(before[handle])}:
            waits = [f"^{held[handle].op}"]
            done = tf.compat.v1.NodeDef(name=write.name, op="NoOp", device=write.device)
            done.input.extend([*control_inputs(write), *waits])
            instead |= {write.name: done, chosen.name: None}
    gone = frozenset(name for name, new in instead.items() if new is None)
    return tuple(instead.get(n.name, n) for n in nodes if n.name not in gone), gone


class _Restoring:
    def __init__(
        self,
        handles: Mapping[Component, tuple[str, VariableRef]],
        before: Mapping[str, str],
        adopt: Callable[[Any], None],
        select: Callable[[str], Select],
        found: Restored,
    ) -> None:
        self._handles = handles
        self._adopt = adopt
        self._select = select
        self._found = found
        # What each variable holds, and what an access of it waits for, by its handle.
        self._held = {handle: Value(read) for handle, read in before.items()}
        self._waits = {handle: [f"^{read}"] for handle, read in before.items()}
        # By handle, the branch that an update of its rows stands in, None of whole ones.
        self._used: dict[str, str | None] = {}

    def restore(self, node: Any) -> None:
        """Puts one update in the place of what stands for it."""
        applied = tf.compat.v1.NodeDef.FromString(node.attr[_NODE].s)
        components = zip(node.attr[_KEYS].list.s, node.attr[_REPLICAS].list.i, strict=True)
        own = [self._handles[key.decode(), replica] for key, replica in components]
        select = self._select(node.name) if writes_rows(applied.op) else None
        self._use([handle for handle, _ in own], select)
        data = data_inputs(node)
        applied.name, applied.device = node.name, node.device or applied.device
        for number, (handle, ref) in enumerate(own):
            value = self._now(data[number])
            if value != self._held[handle]:
                # Something else was done to it in the branch.
                self._assign(applied, number, handle, ref, value, select)
        waits = [wait for handle, _ in own for wait in self._waits[handle]]
        del applied.input[:]
        applied.input.extend([*(handle for handle, _ in own), *data[len(own) :], *waits])
        self._add(applied)
        self._found.gone.add(node.name)
        for number, (handle, ref) in enumerate(own):
            after = self._new(
                applied, f"wu_shard_after_{number}", READ, [handle, f"^{applied.name}"]
            )
            after.attr["dtype"].type = ref.dtype
            self._add(after)
            self._found.values[Value(node.name, number)] = self._held[handle] = Value(after.name)
            self._found.shapes[after.name] = (ref.shape,)
            self._waits[handle] = [f"^{after.name}"]
            if select is not None:
                self._found.held[handle] = self._held[handle]

    def _use(self, handles: Sequence[str], select: Select | None) -> None:
        branch = None if select is None else select.branch
        for handle in handles:
            if handle in self._used and (branch is None or self._used[handle] != branch):
                raise RunsInVainError(refusals.Branches.BRANCH_FUSED_TWICE.at())
            self._used[handle] = branch

    def _assign(
        self,
        applied: Any,
        number: int,
        handle: str,
        ref: VariableRef,
        value: Value,
        select: Select | None,
    ) -> None:
        """Assigns what the branch made of a variable before an update; in vain, what it holds."""
        if select is not None:
            chosen = self._new(applied, f"wu_shard_chosen_{number}", "SelectV2", [])
            chosen.input.extend(select.inputs(str(value), str(self._held[handle])))
            chosen.attr["T"].type = ref.dtype
            self._add(chosen)
            self._found.shapes[chosen.name] = (ref.shape,)
            value = Value(chosen.name)
        inputs = [handle, str(value), *self._waits[handle]]
        filled = self._new(applied, f"wu_shard_before_{number}", "AssignVariableOp", inputs)
        filled.attr["dtype"].type = ref.dtype
        self._add(filled)
        self._waits[handle].append(f"^{filled.name}")

    def _now(self, text: str) -> Value:
        value = parse_value(text)
        return self._found.values.get(value, value)

    def _new(self, applied: Any, name: str, op: str, inputs: Sequence[str]) -> Any:
        full = f"{applied.name}/{name}"
        return tf.compat.v1.NodeDef(name=full, op=op, input=inputs, device=applied.device)

    def _add(self, node: Any) -> None:
        self._adopt(node)
        self._found.nodes.append(node)
