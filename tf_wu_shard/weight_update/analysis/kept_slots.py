"""Which variables a step keeps for a weight, whether or not its update can be followed as a whole.

A slot is seen by data flow: what is written to the weight depends on it, the step writes it, no
layer trains it, no other weight depends on it, and it has the weight's shape. Of whatever else a
weight depends on that the step writes (statistics of a layer, factors of a moment) nobody can say
whose it is: then not all slots are known.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import ASSIGN, num_written
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate, UpdatedVariable, WeightUpdate

# A weight that depends on more variables than this has no such number of slots: layers have state.
MOST_STATES = 64


@dataclasses.dataclass(frozen=True)
class KeptSlots:
    """What is kept for a weight.

    Attributes:
        slots: Keys of its slots, as far as they are known.
        are_all: Whether there are no others.
    """

    slots: tuple[str, ...] = ()
    are_all: bool = False


def kept_slots(view: GraphView, weights: Collection[str]) -> dict[str, KeptSlots]:
    """Finds the slots of weights.

    Args:
        view: The step.
        weights: Keys of all weights that it updates.

    Returns:
        For each of them, by key, what is kept for it.
    """
    refs = {ref.key: ref for ref in view.variables.values()}
    touched = _Touched(view)
    states = {
        key
        for key in (*touched.writes, *touched.unseen)
        if key not in weights and not refs[key].trainable
    }
    behind = states_behind(view, states)
    sizes = {key: None if ref.shape is None else math.prod(ref.shape) for key, ref in refs.items()}
    found = {key: _reached(key, touched, behind, sizes) for key in weights if key in refs}
    owners = collections.Counter(state for states in found.values() for state in states or ())
    kept = {}
    for key, reached in found.items():
        own = [s for s in reached or () if owners[s] == 1 and refs[s].shape == refs[key].shape]
        seen = bool(touched.writes[key]) and touched.unseen.isdisjoint((key, *own))
        are_all = seen and reached is not None and len(own) == len(reached)
        kept[key] = KeptSlots(tuple(sorted(own)), are_all)
    return kept


def with_variables(
    view: GraphView,
    updates: Iterable[WeightUpdate],
    refused: Sequence[RefusedUpdate],
    reduced: Container[Value] = (),
) -> tuple[RefusedUpdate, ...]:
    """Refused updates, with what each would have updated.

    Args:
        view: The step.
        updates: Its updates that are not refused.
        refused: Those that are.
        reduced: The results of its reductions.
    """
    if not refused:
        return ()
    counted = {v.key for update in updates for v in update.variables}
    weights = {w.key for update in updates for w in update.weights}
    found = kept_slots(view, {*weights, *(one.variable for one in refused)})
    refs = {ref.key: ref for ref in view.variables.values()}
    completed = []
    for one in refused:
        is_weight = one.refusal.kind is not refusals.Updates.NOT_TRAINABLE or _moves(
            view, one.variable, reduced
        )
        slots = found.get(one.variable, KeptSlots()).slots if is_weight else ()
        variables = tuple(
            UpdatedVariable(key, (), shape, refs[key].dtype, key in slots, refs[key].trainable)
            for key in (one.variable, *slots)
            if key in refs and key not in counted and (shape := refs[key].shape) is not None
        )
        counted.update(v.key for v in variables)
        completed.append(dataclasses.replace(one, variables=variables))
    return tuple(completed)


def _moves(view: GraphView, key: str, reduced: Container[Value]) -> bool:
    """Whether a variable is written with what it held, and a step from there.

    What is made anew of another one, such as a codebook of averages of what it stands for, has no
    slots.
    """

    def entering(value: Value) -> Iterable[Value]:
        if value in reduced:
            return ()
        ref = view.variables.get(value.op)
        others = values_of(view, value.op).writes if ref is not None and ref.key != key else ()
        return (*view.producer(value).inputs, *(v for write in others for v in write.op.inputs))

    own = {handle for handle, ref in view.variables.items() if ref.key == key}
    writes = [write.op for handle in own for write in values_of(view, handle).writes]
    written = (value for op in writes for value in op.inputs[1:])
    return any(op.type != ASSIGN for op in writes) or any(
        value.op in own for value in reachable(written, entering)
    )


class _Touched:
    """Who writes which variable.

    Attributes:
        writes: For each variable, by key, the ops that write it.
        unseen: Keys of those that something may write into which nobody looks.
    """

    def __init__(self, view: GraphView) -> None:
        self._view = view
        self.writes: dict[str, list[Op]] = collections.defaultdict(list)
        self.unseen: set[str] = set()
        for op in view:
            keys = self.keys(op)
            count = num_written(op.type)
            for key in keys[:count]:
                self.writes[key].append(op)
            if not count and op.type != READ and (is_call(op.type) or op.name in view.effects):
                self.unseen.update(keys)

    def keys(self, op: Op) -> list[str]:
        """The variables whose handles an op takes."""
        refs = self._view.variables
        return [refs[value.op].key for value in op.inputs if value.op in refs]

    def operands(self, op: Op) -> Iterable[Value]:
        """What an op takes that is no handle."""
        return (value for value in op.inputs if value.op not in self._view.variables)


def states_behind(view: GraphView, states: Collection[str]) -> dict[str, frozenset[str]]:
    """On the values of which variables the result of each op depends.

    Args:
        view: The graph.
        states: The variables, by key.

    Returns:
        By the op's name the variables' keys. Which they are does not matter beyond `MOST_STATES`.
    """
    found: dict[str, frozenset[str]] = {}
    for op in view:
        behind: frozenset[str] = frozenset()
        for value in op.inputs:
            ref = view.variables.get(value.op)
            more = found.get(value.op, frozenset())
            if ref is not None:
                more = frozenset({ref.key}).intersection(states)
            if len(behind) <= MOST_STATES and not more <= behind:
                behind |= more
        if behind:
            found[op.name] = behind
    return found


def _reached(
    weight: str,
    touched: _Touched,
    behind: Mapping[str, frozenset[str]],
    sizes: Mapping[str, int | None],
) -> set[str] | None:
    """The states that a weight's update goes through; None of too many.

    What has one element is no slot of a larger weight: it counts steps or scales a loss.
    """
    found: set[str] = set()
    pending = list(touched.writes[weight])
    while pending:
        op = pending.pop()
        states = {key for key in touched.keys(op)[: num_written(op.type)] if key != weight}
        for value in touched.operands(op):
            states |= behind.get(value.op, frozenset())
        for key in states - found:
            if sizes[key] == 1 and sizes[weight] != 1:
                continue
            if len(found) >= MOST_STATES:
                return None
            found.add(key)
            pending += touched.writes[key]
    return found
