"""The variables of an update as others see them: which are slots, and when weights are looked at.

A slot is looked at by the body alone. A weight is looked at by others, mostly before its first
write, or after its last one. A step that updates it several times reads it in between as well: each
time the weight has another *version*, which its readers need whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.sparse import READ_ROWS
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.variable_values import VariableValues
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable


def updated_variables(
    graph: ReducedGraph,
    touching: Mapping[str, Sequence[VariableValues]],
    body: Set[str],
) -> tuple[UpdatedVariable, ...] | Refusal:
    """Separates weights from slots.

    Args:
        graph: The graph.
        touching: The values of each variable of the update, by replica.
        body: The names of the body's ops on all replicas.

    Returns:
        The variables, weights first; or why their update cannot be shared.
    """
    view, handles = graph.view, graph.handles
    versions: dict[str, set[int]] = {}
    casts: dict[str, set[int]] = {}
    for variable, per_replica in touching.items():
        for value in (value for own in per_replica for value in own.values):
            for read in value.reads:
                if _is_read_outside(view, read, body):
                    versions.setdefault(variable, set()).add(value.number)
                    casts.setdefault(variable, set()).update(_casts(view, read, body))
    refs = {v: view.variables[handles[v][0]] for v in touching}
    trainable = {v for v, ref in refs.items() if ref.trainable}
    if not trainable:
        return refusals.Updates.NOT_TRAINABLE.at(next(iter(touching)))
    # A weight that the step happens not to read is a weight all the same.
    weights = versions.keys() if versions.keys() & trainable else versions.keys() | trainable
    updated = []
    for variable, ref in refs.items():
        seen = versions.get(variable, set())
        found = _versions(variable, touching[variable][0], seen) if variable in weights else ()
        if isinstance(found, Refusal):
            return found
        updated.append(
            UpdatedVariable(
                variable,
                tuple(handles[variable][r] for r in range(len(touching[variable]))),
                ref.shape or (),
                ref.dtype,
                is_slot=variable not in weights,
                trainable=ref.trainable,
                read_as=only.pop() if len(only := casts.get(variable, set())) == 1 else ref.dtype,
                versions=found,
            )
        )
    updated.sort(key=lambda v: (v.is_slot, v.key not in trainable))
    return tuple(updated)


def _versions(variable: str, values: VariableValues, seen: Set[int]) -> tuple[int, ...] | Refusal:
    """After how many writes a weight has to be whole, of which its last one always is one."""
    branches = [write.op for write in values.writes if not write.access.is_own_write]
    between = sorted(count for count in seen if 0 < count < len(values.writes))
    if between and branches:
        # Such a branch is none of the body's: it works on the weight as it is stored.
        return refusals.Updates.READ_BEFORE_BRANCH.at(branches[0].name, variable=variable)
    return (*between, len(values.own_writes))


def look_from_outside(view: GraphView, values: Iterable[Value], body: Set[str]) -> Refusal | None:
    """The first look at one of some values, under whatever name, by none of the body's ops.

    Args:
        view: The graph.
        values: The values.
        body: The names of the body's ops on all replicas.
    """
    returned = set(view.outputs)

    def takers(value: Value) -> list[tuple[Op, int]]:
        return [(op, slot) for op, slot in view.consumers(value) if op.name not in body]

    for value in reachable(values, lambda one: [op.result_of(slot) for op, slot in takers(one)]):
        if value in returned:
            return refusals.Updates.RETURNED.at(value.op)
        for op, _ in takers(value):
            if family_of(op.type) is not Family.RELABEL:
                return refusals.Updates.LOOKED_AT.at(op.name, op_type=op.type)
    return None


def _casts(view: GraphView, read: Op, body: Set[str]) -> set[int]:
    """The element types that a read is cast to outside of the body; 0 for any other use."""
    return {
        op.attribute("DstT").type if op.type == "Cast" else 0
        for op, _ in view.consumers(Value(read.name))
        if op.name not in body
    }


def _is_read_outside(view: GraphView, read: Op, body: Set[str]) -> bool:
    if read.type == READ_ROWS and read.name in body:
        return False
    if read.type != READ:
        return True
    return look_from_outside(view, [Value(read.name)], body) is not None
