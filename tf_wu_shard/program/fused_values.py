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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.graph.builder import GraphBuilder, result_types
from tf_wu_shard.graph.nodes import control_inputs, data_inputs
from tf_wu_shard.graph.op import Value, attribute_in, parse_value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.grounds.scratch import scratch_variable
from tf_wu_shard.program.speculation import RunsInVainError
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import num_written
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


@dataclasses.dataclass(frozen=True)
class Restored:
    """Nodes in which fused updates stand again.

    Attributes:
        nodes: The nodes; some are the old ones: not to be changed.
        values: What stands for the results of what stood for the updates.
        shapes: The static shapes of the results of what was added, by name.
        gone: Names of what stood for them.
    """

    nodes: list[Any]
    values: dict[Value, Value]
    shapes: dict[str, tuple[tuple[int, ...] | None, ...]]
    gone: set[str]


def restored(
    nodes: Sequence[Any],
    handles: Mapping[Component, tuple[str, VariableRef]],
    before: Mapping[str, str],
    adopt: Callable[[Any], None],
) -> Restored:
    """Puts the fused updates back.

    Args:
        nodes: NodeDefs, the stand-ins among them; never changed.
        handles: The handle of each variable, as a NodeDef names its operands.
        before: For each handle, the read of what it holds before all of this.
        adopt: Makes a new NodeDef part of the program that the nodes are in.

    Raises:
        RunsInVainError: If two of them are of one variable.
    """
    found = Restored([], {}, {}, set())
    used: set[str] = set()
    for node in nodes:
        if _NODE not in node.attr:
            found.nodes.append(node)
            continue
        components = zip(node.attr[_KEYS].list.s, node.attr[_REPLICAS].list.i, strict=True)
        own = [handles[key.decode(), replica] for key, replica in components]
        if not used.isdisjoint(handle for handle, _ in own):
            raise RunsInVainError(refusals.Branches.BRANCH_FUSED_TWICE.at())
        used.update(handle for handle, _ in own)
        _restore(node, own, before, adopt, found)
    return found


def _restore(
    node: Any,
    own: Sequence[tuple[str, VariableRef]],
    before: Mapping[str, str],
    adopt: Callable[[Any], None],
    found: Restored,
) -> None:
    def new(name: str, op: str, inputs: Sequence[str], dtype: int) -> Any:
        made = tf.compat.v1.NodeDef(name=f"{node.name}/{name}", op=op, input=inputs)
        made.device = applied.device
        made.attr["dtype"].type = dtype
        adopt(made)
        return made

    applied = tf.compat.v1.NodeDef.FromString(node.attr[_NODE].s)
    applied.name, applied.device = node.name, node.device or applied.device
    waits = [f"^{before[handle]}" for handle, _ in own]
    data = data_inputs(node)
    for number, (handle, ref) in enumerate(own):
        if data[number] != before[handle]:
            # Something else was done to it in the branch.
            inputs = [handle, data[number], f"^{before[handle]}"]
            filled = new(f"wu_shard_before_{number}", "AssignVariableOp", inputs, ref.dtype)
            found.nodes.append(filled)
            waits.append(f"^{filled.name}")
    del applied.input[:]
    applied.input.extend([*(handle for handle, _ in own), *data[len(own) :], *waits])
    adopt(applied)
    found.nodes.append(applied)
    found.gone.add(node.name)
    for number, (handle, ref) in enumerate(own):
        after = new(f"wu_shard_after_{number}", READ, [handle, f"^{applied.name}"], ref.dtype)
        found.nodes.append(after)
        found.values[Value(node.name, number)] = Value(after.name)
        found.shapes[after.name] = (ref.shape,)
