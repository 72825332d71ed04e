"""The pass: gradients that are late wait beside their weights, and nothing is seen of stand-ins.

Of each replica, with its batch's number (see `lateness`), g its gradient and p what it still has:

    total = p + (0 if it has no batch else g)
    what the sum gets = 0 if it is held else total
    what it still has then = total if it is held else 0

All by selects, as 0 * NaN is NaN. The zeros are -0.0, for which x + -0.0 = x, whatever x is: where
no one is late, not one bit of the step is another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_wu_shard.dtypes import INT32, INT64
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.partial_sums.lateness import HELD, STAND_IN
from tf_wu_shard.partial_sums.options import FLAG, PartialSums, parse_flag
from tf_wu_shard.partial_sums.rounds.calls import rounds_called_in
from tf_wu_shard.partial_sums.rounds.exchange import exchanged, exchanged_by_caller
from tf_wu_shard.partial_sums.steps.batch_flow import BatchFlow
from tf_wu_shard.partial_sums.steps.effects import (
    Given,
    Held,
    check_gradients,
    check_updates,
    given_values,
    held_writes,
)
from tf_wu_shard.partial_sums.steps.entries import Entries
from tf_wu_shard.partial_sums.steps.sums import StepSums, sums_of
from tf_wu_shard.rules.writes import ASSIGN
from tf_wu_shard.step.edit import StepEdit
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.replicas import workers_of
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage import late_gradients
from tf_wu_shard.storage.late_gradients import ReplicasOwn, late_gradients_of
from tf_wu_shard.storage.own_variables import OwnVariables, beside
from tf_wu_shard.tensorflow_private import marked_batches


class PartialGradientSums:
    """Sums of gradients that wait for no replica."""

    flag = FLAG

    def parse(self, value: object) -> PartialSums | None:
        """Reads a value of the flag, see `parse_flag`; once it is on checkpoints know of lateness.

        One that has late gradients may be restored before any step is traced.
        """
        options = parse_flag(value)
        if options is not None:
            late_gradients.install()
        return options

    def is_called_in(self, view: GraphView) -> bool:
        """Whether a function calls steps in rounds, so that its own sums must not wait either."""
        return bool(rounds_called_in(view))

    def apply(self, step: Step, options: PartialSums) -> Step:
        """Lets a step's replicas be late; a step whose batches never are stays as it is."""
        marks = marked_batches.marks_of(step.graph)
        sums = sums_of(step)
        on_workers = len(step.replicas.local) < step.replicas.total and workers_of(step.captured)
        if on_workers and not marks:
            return exchanged(step, sums, options) if sums.of_weights else exchanged_by_caller(step)
        if sums.of_weights and not marks and not _is_late(step, sums):
            said = "no gradient is ever late: its batches come from no deadline_dataset"
            for one in _trained(step, sums):
                late_gradients_of(one).pass_by()
            return dataclasses.replace(step, changes={**step.changes, FLAG: said})
        if marks and step.refused:
            raise WuShardError(f"of a sum over replicas, {step.refused[0].reason}")
        if not sums.of_weights:
            return step
        new = _LateStep(step, marks, sums).done()
        marked_batches.forget(step.graph)
        return new


def _is_late(step: Step, sums: StepSums) -> bool:
    """Whether a checkpoint that was restored holds gradients of its weights that are late."""
    return any(late_gradients_of(one).waiting for one in _trained(step, sums))


def _trained(step: Step, sums: StepSums) -> list[Any]:
    """The variables of which a step sums gradients."""
    keys = {*sums.gradients, *(one.key for one in sums.entries)}
    return [variable for key, variable in step.captured.variables.items() if key in keys]


@dataclasses.dataclass(frozen=True)
class _Lateness:
    """Of one copy of the replicas' program, scalars of type bool."""

    is_held: Value
    has_none: Value
    is_late: Value


class _LateStep:
    """One step while it is changed."""

    def __init__(self, step: Step, marks: list[marked_batches.Mark], sums: StepSums) -> None:
        self._step = step
        self._view = step.view
        self._edit = StepEdit(step)
        self._sums = sums
        batches = self._batches(marks)
        tensors = [[one for mark in of_copy for one in _tensors(mark)] for of_copy in batches]
        flow = BatchFlow(self._view, tensors, sums.of_weights, sums.others)
        check_gradients(flow, sums.of_weights)
        check_updates(self._view, flow)
        self._fixed = {
            number
            for number, one in enumerate(sums.entries)
            if one.has_fixed_rows(self._view, flow)
        }
        for one in self._sums.entries:
            one.check_rows_alone(self._view)
        self._held = held_writes(self._view, flow, step.replicas.devices)
        self._given = given_values(self._view, flow, sums.others)
        trained = (ref.key for ref in self._view.variables.values() if ref.trainable)
        self._beside = step.captured.variables[next(iter(trained))]
        self._lateness = [self._late(copy, of_copy) for copy, of_copy in enumerate(batches)]

    def done(self) -> Step:
        """The step with everything in it."""
        for key, found in self._sums.gradients.items():
            variable = self._step.captured.variables[key]
            for number, reduction in enumerate(found):
                own = beside(variable, f"{FLAG}/{number}", dtype=reduction.dtype, fill=-0.0)
                self._keep(variable, str(number), {late_gradients.dense(number): own})
                self._let_wait(key, reduction, own, tuple(variable.shape))
        for number, entries in enumerate(self._sums.entries):
            self._let_entries_wait(number, entries)
        for held in self._held:
            self._hold(held)
        for number, given in enumerate(self._given):
            self._give_the_last(number, given)
        counters = self._count()
        count = len(self._sums.of_weights)
        weights = f"{count} gradients" if count > 1 else "1 gradient"
        self._edit.report(FLAG, lambda: f"{weights} may be late; {_share(counters)}")
        return self._edit.done()

    def _keep(self, variable: Any, name: str, parts: dict[str, OwnVariables]) -> None:
        """Lets checkpoints of a weight hold what waits."""
        workers = workers_of(self._step.captured)
        own = ReplicasOwn(parts, None if workers is None else workers.number)
        late_gradients_of(variable).attach(name, own)

    def _batches(self, marks: list[marked_batches.Mark]) -> list[list[marked_batches.Mark]]:
        """Per copy of the replicas' program, what it was given."""
        devices = self._step.replicas.devices
        found: list[list[marked_batches.Mark]] = [[] for _ in devices]
        for mark in marks:
            op = self._view.ops.get(mark.op)
            if op is None:
                raise WuShardError(
                    f"the batch of {mark.op} enters a part of the step that is not traced with it"
                )
            found[devices.index(op.node.device) if len(devices) > 1 else 0].append(mark)
        # Without any none is ever late, but a checkpoint may have had something that was.
        if marks and not all(found):
            raise WuShardError("not every replica gets its batches from a deadline_dataset")
        return found

    def _late(self, copy: int, marks: list[marked_batches.Mark]) -> _Lateness:
        at = self._edit.at(copy, "wu_shard/late")
        if not marks:
            never = at.op("Less", [at.constant(0), at.constant(0)], "never")
            return _Lateness(never, never, never)
        is_held, has_none = (self._has_bit(at, marks, bit) for bit in (HELD, STAND_IN))
        is_late = at.op("LogicalOr", [is_held, has_none], "is_late")
        return _Lateness(is_held, has_none, is_late)

    def _has_bit(self, at: Emitter, marks: list[marked_batches.Mark], bit: int) -> Value:
        found = []
        for mark in marks:
            masked = at.op("BitwiseAnd", [Value(mark.op), at.constant(bit)], "bit")
            # An empty batch, where replicas share too few examples, is in time.
            is_set = at.op("NotEqual", [masked, at.constant(0)], "is_set")
            found.append(at.op("Any", [is_set, at.constant([0])], "any"))
        first, *rest = found
        for other in rest:
            first = at.op("LogicalOr", [first, other], "or")
        return first

    def _let_wait(
        self, name: str, reduction: GradientReduction, own: OwnVariables, stored: tuple[int, ...]
    ) -> None:
        """Lets a gradient wait in variables of shape `stored`."""
        handles = self._edit.handles(own, f"{name}/late")
        for copy, (gradient, handle) in enumerate(zip(reduction.operands, handles, strict=True)):
            at = self._edit.at(copy, f"{name}/late")
            late, zero = self._lateness[copy], at.constant(-0.0, reduction.dtype)
            wanted = at.op("SelectV2", [late.has_none, zero, gradient], "own")
            waiting = at.op("ReadVariableOp", [handle], "waiting", dtype=reduction.dtype)
            shape = self._view.shape(gradient)
            if shape is None:
                like = at.op("Shape", [gradient], "shape", out_type=INT32)
                waiting = at.op("Reshape", [waiting, like], "as_gradient")
            elif shape != stored:
                waiting = at.reshape(waiting, shape, "as_gradient")
            total = at.op("AddV2", [wanted, waiting], "total")
            sent = at.op("SelectV2", [late.is_held, zero, total], "sent")
            rest = at.op("SelectV2", [late.is_held, total, zero], "rest")
            if shape != stored:
                rest = at.reshape(rest, stored, "as_variable")
            self._edit.must_run(at.op(ASSIGN, [handle, rest], "keep"))
            self._edit.replace_operand(reduction, copy, sent)

    def _let_entries_wait(self, number: int, entries: Entries) -> None:
        """As `_let_wait`, of lists: what is left out has no length."""
        if number in self._fixed:
            values = entries.parts[Gathered.VALUES]
            shape = self._view.shape(values.operands[0])
            if shape is not None:
                own = self._own(f"rows_{number}", shape, values.dtype, fill=-0.0)
                self._keep_entries(number, entries, {late_gradients.FIXED_ROWS: own})
                self._let_wait(f"{entries.table}/rows_{number}", values, own, shape)
                return
        lists: dict[str, OwnVariables] = {}
        for kept, part in zip(late_gradients.LISTS, entries.lists, strict=True):
            assert part.gathered is not None
            dims = self._view.stated(part.operands[0])
            width = tuple(size for size in (dims or ())[1:] if size is not None)
            if dims is None or len(width) < len(dims) - 1:
                raise WuShardError(
                    f"the rows of the sparse gradient of {entries.table} have no width"
                )
            name = f"{entries.table}/{part.gathered.name.lower()}_{number}"
            own = lists[kept] = self._own(name, (None, *width), part.dtype)
            handles = self._edit.handles(own, f"{entries.table}/late_{name}")
            for copy, (mine, handle) in enumerate(zip(part.operands, handles, strict=True)):
                at, late = self._edit.at(copy, f"{entries.table}/late"), self._lateness[copy]
                rank = len(dims)
                wanted = _if(at, late.has_none, mine, rank, keep=False)
                waiting = at.op("ReadVariableOp", [handle], "waiting", dtype=part.dtype)
                total = at.op("ConcatV2", [waiting, wanted, at.constant(0)], "total")
                rest = _if(at, late.is_held, total, rank, keep=True)
                self._edit.must_run(at.op(ASSIGN, [handle, rest], "keep"))
                # TensorFlow gathers no lists that are all empty: a zero is added to row 0.
                zero = np.full([1, *width], -0.0 if part.gathered is Gathered.VALUES else 0)
                one = at.reshape(at.constant(zero.ravel().tolist(), part.dtype), zero.shape, "one")
                nothing = _if(at, late.is_late, one, rank, keep=True)
                some = _if(at, late.is_held, total, rank, keep=False)
                sent = at.op("ConcatV2", [some, nothing, at.constant(0)], "sent")
                self._edit.replace_operand(part, copy, sent, any_length=True)
        self._keep_entries(number, entries, lists)

    def _keep_entries(self, number: int, entries: Entries, parts: dict[str, OwnVariables]) -> None:
        if entries.key is not None:
            variable = self._step.captured.variables[entries.key]
            self._keep(variable, f"{self._step.graph.name}/{number}", parts)

    def _own(
        self, name: str, shape: Sequence[int | None], dtype: int, fill: float = 0.0
    ) -> OwnVariables:
        """Variables of this step; another function that trains the same weights has others."""
        named = f"{FLAG}/{self._step.graph.name}/{name}/{dtype}/{tuple(shape)}"
        return beside(self._beside, named, shape, dtype, fill)

    def _hold(self, held: Held) -> None:
        """Lets a variable be as it was where the batch only stands in."""
        op, at = held.op, self._edit.at(held.copy, f"{held.op.name}/held")
        new = op.inputs[held.slot]
        dtype = self._view.dtype(new)
        has_none = self._lateness[held.copy].has_none
        if op.type == ASSIGN:
            # Behind whatever the write waits for: it reads what the write would replace.
            before = at.op(
                "ReadVariableOp", [op.inputs[0]], "before", controls=op.controls, dtype=dtype
            )
        else:
            before = at.constant(0 if op.type != "AssignAddVariableOp" else -0.0, dtype)
        kept = at.op("SelectV2", [has_none, before, new], "kept")
        self._edit.replace_input(op.name, held.slot, kept)

    def _give_the_last(self, number: int, given: Given) -> None:
        """Lets a replica without a batch give away what it gave in its last step with one."""
        shape = self._view.shape(given.value)
        dtype = self._view.dtype(given.value)
        where = f"{given.value.op}, which leaves the step or meets other replicas' batches,"
        if shape is None:
            raise WuShardError(
                f"{where} has a shape that differs from step to step, so that nothing can take its"
                " place where a batch only stands in; return its sum or its mean"
            )
        own = self._own(f"given_{number}", shape, dtype)
        handle = self._edit.handles(own, f"{given.value.op}/last")[given.copy]
        at = self._edit.at(given.copy, f"{given.value.op}/last")
        last = at.op("ReadVariableOp", [handle], "before", dtype=dtype)
        has_none = self._lateness[given.copy].has_none
        value = at.op("SelectV2", [has_none, last, given.value], "given")
        self._edit.must_run(at.op(ASSIGN, [handle, value], "keep"))
        if given.reduction is not None:
            self._edit.replace_operand(given.reduction, given.copy, value)
        elif given.op is not None:
            self._edit.replace_input(given.op.name, given.slot, value)
        else:
            self._edit.replace_output(given.slot, value)

    def _count(self) -> OwnVariables:
        """How many steps each replica took, and in how many its gradient was in time."""
        own = self._own("steps", (2,), INT64)
        for copy, handle in enumerate(self._edit.handles(own, "wu_shard/steps")):
            at = self._edit.at(copy, "wu_shard/steps")
            in_time = at.op("LogicalNot", [self._lateness[copy].is_late], "in_time")
            fresh = at.cast(in_time, INT64, "fresh")
            both = at.op("Pack", [at.constant(1, INT64), fresh], "both", axis=0)
            self._edit.must_run(at.op("AssignAddVariableOp", [handle, both], "count"))
        return own


def _if(at: Emitter, condition: Value, entries: Value, rank: int, *, keep: bool) -> Value:
    """A list of entries, or none of them: which where the condition holds, says `keep`."""
    rest = [-1] * (rank - 1)
    sizes = [at.constant([size, *rest]) for size in ((-1, 0) if keep else (0, -1))]
    size = at.op("SelectV2", [condition, *sizes], "size")
    return at.op("Slice", [entries, at.constant([0] * rank), size], "entries")


def _tensors(mark: marked_batches.Mark) -> list[Value]:
    """The tensors of a batch as values of the step."""
    named = (name.rpartition(":") for name in mark.tensors)
    return [Value(op, int(index)) for op, _, index in named]


def _share(counters: OwnVariables) -> str:
    """How many of the replicas' gradients came in time so far."""
    counts = [value.numpy() for value in counters.values()]
    steps, fresh = (sum(int(one[i]) for one in counts) for i in (0, 1))
    if not steps:
        return "no step was taken yet"
    return f"{100 * fresh / steps:.1f} % of them were in time in {steps // len(counts)} steps"
