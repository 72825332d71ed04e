"""What is known of the weights whose updates are refused: shape, element type, and their slots."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

from tf_wu_shard.dtypes import dtype_name, item_bytes
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.answers.answer import RefusedAnswer
from tf_wu_shard.model_files.types import Model
from tf_wu_shard.rules.writes import is_plain_write
from tf_wu_shard.weight_update.analysis.kept_slots import KeptSlots, kept_slots
from tf_wu_shard.weight_update.analysis.types import Analysis, UpdatedVariable


def refused_weights(model: Model, view: GraphView, analysis: Analysis) -> tuple[RefusedAnswer, ...]:
    """Describes the weights of a step that the analysis refused.

    Args:
        model: What the step belongs to.
        view: The step.
        analysis: What was found in it.

    Returns:
        Each of them, in the analysis' order.
    """
    if not analysis.refused:
        return ()
    updated = {w.key for update in analysis.updates for w in update.weights}
    refused = dict.fromkeys(r.variable for r in analysis.refused)
    found = kept_slots(view, {*updated, *refused})
    counted = {v.key for update in analysis.updates for v in update.variables}
    summed = {r.variable for r in analysis.refused if r.reductions}
    variables = _Variables(model, view)
    answers = []
    for key in refused:
        listed, kept = variables.slots_in_files(key), found.get(key, KeptSlots())
        slots = [s for s in dict.fromkeys((*listed, *kept.slots)) if s not in counted]
        counted.update(slots)
        are_all = bool(listed) or kept.are_all
        answers.append(variables.answer(key, slots, are_all=are_all, summed=key in summed))
    return tuple(answers)


def described_alone(model: Model, view: GraphView, names: Iterable[str]) -> Iterator[RefusedAnswer]:
    """Describes weights of a step of which there is no analysis.

    Args:
        model: What the step belongs to.
        view: The step.
        names: The weights' keys.
    """
    variables = _Variables(model, view)
    for key in names:
        slots = variables.slots_in_files(key)
        yield variables.answer(key, slots, are_all=bool(slots), summed=False)


def with_refused(
    model: Model, view: GraphView, analysis: Analysis, refused: Iterable[RefusedAnswer]
) -> Analysis:
    """What was found in a step, with what is known of the refused weights and their slots.

    Args:
        model: What the step belongs to.
        view: The step.
        analysis: What was found in it.
        refused: The weights whose updates were refused, as `refused_weights` gives them.
    """
    variables = _Variables(model, view)
    known = {one.variable: variables.updated(one) for one in refused}
    # A weight that was refused more than once counts once.
    return dataclasses.replace(
        analysis,
        refused=tuple(
            dataclasses.replace(one, variables=known.pop(one.variable, ()))
            for one in analysis.refused
        ),
    )


class _Variables:
    """The variables of a step, as far as its files and its graph show them."""

    def __init__(self, model: Model, view: GraphView) -> None:
        self._model = model
        self._view = view
        self._handles = {ref.key: name for name, ref in view.variables.items()}
        self._slots: dict[str, dict[str, None]] = {}
        for slot in model.slots:
            if slot.slot in self._handles:
                self._slots.setdefault(slot.variable, {})[slot.slot] = None

    def slots_in_files(self, key: str) -> tuple[str, ...]:
        """The slots of a weight that the files show and the step uses."""
        return tuple(self._slots.get(key, ()))

    def answer(
        self, key: str, slots: Sequence[str], *, are_all: bool, summed: bool
    ) -> RefusedAnswer:
        """The answer about a weight."""
        shape, dtype = self._shape(key), self._dtype(key)
        sizes = [self._bytes(slot) for slot in slots]
        return RefusedAnswer(
            variable=key,
            shape=shape,
            dtype=_name(dtype),
            bytes=self._bytes(key),
            slots=tuple(slots),
            slot_bytes=sum(size or 0 for size in sizes),
            slots_told=are_all and None not in sizes,
            is_summed=summed,
        )

    def updated(self, answer: RefusedAnswer) -> tuple[UpdatedVariable, ...]:
        """The weight of an answer, and its slots, as far as their shapes and types are known."""
        slots = frozenset(answer.slots)
        return tuple(
            UpdatedVariable(key, (), shape, dtype, key in slots, key not in slots)
            for key in (answer.variable, *answer.slots)
            for shape, dtype in [(self._shape(key), self._dtype(key))]
            if shape is not None and _name(dtype)
        )

    def _bytes(self, key: str) -> int | None:
        shape, dtype = self._shape(key), self._dtype(key)
        if shape is None or not _name(dtype):
            return None
        return math.prod(shape) * item_bytes(dtype)

    def _shape(self, key: str) -> tuple[int, ...] | None:
        """Its shape: as the variable says, or what is assigned to it."""
        handle, listed = self._handles.get(key), self._model.variables.get(key)
        if handle is not None and self._view.variables[handle].shape is not None:
            return self._view.variables[handle].shape
        if listed is not None and listed.shape is not None:
            return listed.shape
        assigned = (
            self._view.shape(op.inputs[1])
            for op, slot in self._users(key)
            if is_plain_write(op.type) and slot == 0
        )
        return next((shape for shape in assigned if shape is not None), None)

    def _dtype(self, key: str) -> int:
        """Its element type's number, 0 where nothing shows it; what takes its handle does."""
        handle, listed = self._handles.get(key), self._model.variables.get(key)
        if handle is not None and self._view.variables[handle].dtype:
            return self._view.variables[handle].dtype
        if listed is not None and listed.dtype:
            return listed.dtype
        named = (
            op.node.attr["dtype"].type for op, _ in self._users(key) if "dtype" in op.node.attr
        )
        return next(named, 0)

    def _users(self, key: str) -> Iterator[tuple[Op, int]]:
        if key in self._handles:
            yield from self._view.consumers(Value(self._handles[key]))


def _name(dtype: int) -> str:
    """The name of an element type; "" of one of no fixed size."""
    try:
        return dtype_name(dtype)
    except WuShardError:
        return ""
