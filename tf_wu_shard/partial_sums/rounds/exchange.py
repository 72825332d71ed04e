"""What a step of several processes sums becomes one op, which hands it in and takes a round's sums.

The op calls this process's `Rounds`. Gradients are added up until a round takes them; of all else
that a step sums, such as losses, metrics and statistics, the last is handed in, on behalf of late
workers as well. What is made of a round's sum, or is summed by a function that calls the step, is
handed in for the next round.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard import dtypes, refusals
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.partial_sums.options import FLAG, PartialSums
from tf_wu_shard.partial_sums.rounds.calls import calls_of_rounds, rounds_called_in
from tf_wu_shard.partial_sums.rounds.carried import (
    Carried,
    added,
    counts_of_batches,
    joined,
    names_of,
)
from tf_wu_shard.partial_sums.rounds.checks import (
    check,
    check_is_not_handed_on,
    check_nothing_waits,
    warn_of_momentum,
)
from tf_wu_shard.partial_sums.rounds.finish import update_of
from tf_wu_shard.partial_sums.rounds.late import InRounds, places_of
from tf_wu_shard.partial_sums.rounds.registry import rounds_of
from tf_wu_shard.partial_sums.rounds.shared import SharedRounds, UpdateAlone
from tf_wu_shard.partial_sums.rounds.sums import Kind
from tf_wu_shard.partial_sums.steps.entries import Entries
from tf_wu_shard.partial_sums.steps.sums import StepSums
from tf_wu_shard.reachable import reachable
from tf_wu_shard.step.edit import StepEdit
from tf_wu_shard.step.replicas import workers_of
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage.late_gradients import late_gradients_of
from tf_wu_shard.tensorflow_private.python_calls import EAGER_CALL, EagerCall
from tf_wu_shard.workers.cluster import name_of

_SUM = "CollectiveReduceV2"


def exchanged(step: Step, sums: StepSums, options: PartialSums) -> Step:
    """A step that waits for no other worker, but for who starts a round.

    Args:
        step: A step of several processes.
        sums: Its sums.
        options: What the user asked for.

    Raises:
        WuShardError: Something of it would be of another step, or would wait all the same.
    """
    return _Exchange(step, sums, options).done()


def exchanged_by_caller(step: Step) -> Step:
    """A function that calls a step, and waits for no other worker either.

    Args:
        step: A function that sums no gradients.
    """
    found = rounds_called_in(step.view)
    if not found:
        return step
    counts, sums_of_others = counts_of_batches(step)
    check_nothing_waits(step)
    first = next(iter([*counts, *sums_of_others]), None)
    if first is None:
        return step
    for one in sums_of_others:
        check_is_not_handed_on(step.view, one)
    if len(found) > 1:
        raise WuShardError(
            f"it sums {first[0].name}, and calls steps of {len(found)} sets of weights: which of"
            " their rounds it is of is not known; sum it in a function of its own"
        )
    edit = StepEdit(step)
    steps = calls_of_rounds(step.view)
    for one in counts:
        _count(step, edit, one, found[0], {name: name for name in steps})
    for one in sums_of_others:
        _sum_of_last_round(step, edit, one, found[0])
    said = "a worker that has a batch asks no other for one" if counts else ""
    if sums_of_others:
        said = f"{len(sums_of_others)} sums are of the round before"
    edit.report(FLAG, said)
    return edit.done()


class _Exchange:
    """One step while it is changed."""

    def __init__(self, step: Step, sums: StepSums, options: PartialSums) -> None:
        self._step = step
        self._view = step.view
        self._sums = sums
        self._options = options
        self._edit = StepEdit(step)
        self._counts, carried = counts_of_batches(step)
        check(step, sums, {op.name for one in self._counts for op in one})
        of_gradients = {one.carriers for one in sums.dense}
        for other in sums.others:
            if other.carriers in of_gradients:
                raise WuShardError(
                    f"{other.operands[0].op} is summed together with gradients, which are added up"
                    " where they are late, and it must not be: sum it by a call of its own"
                )
        self._gradients = [one for one in carried if names_of(one) in of_gradients]
        warn_of_momentum(self._view, sums, options)
        others = [one for one in carried if names_of(one) not in of_gradients]
        carriers = [op for one in carried for op in one]
        behind = _behind(self._view, [*carriers, *_gathering(self._view, sums)])
        late = [one for one in others if any(op.inputs[0].op in behind for op in one)]
        handed_in = [op.inputs[0] for one in self._gradients for op in one]
        handed_in += [own for one in sums.entries for part in one.lists for own in part.operands]
        for value in handed_in:
            if value.op in behind:
                raise WuShardError(
                    f"a gradient, {value.op}, follows from another sum of the same step, such as a"
                    " second update; only one round is taken in a step"
                )
        self._others = [one for one in others if one not in late]
        self._made_of_sums = late

    def done(self) -> Step:
        """The step with everything in it."""
        shared = self._shared()
        at = self._edit.at(0, FLAG)
        dense = [added(at, one) for one in self._gradients]
        lists = [joined(at, part) for one in self._sums.entries for part in one.lists]
        others = [added(at, one) for one in self._others]
        alone = UpdateAlone()
        call = shared.exchange(alone)
        made = _call(at, [*dense, *lists, *others], call, "round")
        alive = _alive(at, made, shared)
        results = iter([Value(made.op, number) for number in range(len(call.types))])
        for one in self._gradients:
            self._replace(one, next(results), alive)
        for entries in self._sums.entries:
            self._replace_entries(entries, [next(results) for _ in entries.lists], alive)
        for one in self._others:
            self._replace(one, next(results), alive)
        carriers = [op.name for one in self._gradients for op in one]
        carriers += [op.name for op in _gathering(self._view, self._sums)]
        for one in self._counts:
            _count(self._step, self._edit, one, shared, dict.fromkeys(carriers, made.op))
        for one in self._made_of_sums:
            _sum_of_last_round(self._step, self._edit, one, shared)
        count = len(self._sums.of_weights)
        weights = f"{count} gradients" if count > 1 else "1 gradient"
        mode, record = self._options.mode, shared.rounds.record
        self._edit.report(FLAG, lambda: f"{weights} summed in rounds ({mode}); {record.summary}")
        done = self._edit.done()
        count = len(dense) + len(lists)
        sums_of_gradients = [Value(made.op, number) for number in range(count)]
        ensured = [one.ensured for one in self._sums.dense if one.ensured is not None]
        alone.update = update_of(done, sums_of_gradients, self._weights, ensured)
        refusal = refusals.Topology.SUMMED_IN_ROUNDS.at()
        return dataclasses.replace(done, unsharded=refusal)

    def _replace(self, carried: Carried, value: Value, alive: Value) -> None:
        """Lets a round's sum take the place of another, once collectives are known to work."""
        for copy, op in enumerate(carried):
            at = self._edit.at(copy, f"{FLAG}/{op.name}")
            dims = self._view.stated(op.inputs[0])
            self._edit.replace_op(op.name, _checked(at, value, dims, [alive.op]))

    def _replace_entries(self, entries: Entries, lists: list[Value], alive: Value) -> None:
        """Lets an update take the rows of a round."""
        instead: dict[Value, Value] = {}
        for part, value in zip(entries.lists, lists, strict=True):
            for copy, result in enumerate(part.results):
                dims = self._view.stated(part.operands[copy])
                at = self._edit.at(copy, f"{FLAG}/{result.op}")
                instead[result] = _checked(at, value, dims and (None, *dims[1:]), [alive.op])
        shape = entries.parts.get(Gathered.SHAPE)
        if shape is not None:
            instead.update(zip(shape.results, shape.operands, strict=True))
        for part in entries.parts.values():
            for carrier in part.carriers:
                results = self._view.results(carrier)
                self._edit.replace_op(carrier, *(instead.get(one) for one in results))

    @property
    def _weights(self) -> list[str]:
        """What is trained: weights by key, tables as users call them."""
        return [*self._sums.gradients, *(one.table for one in self._sums.entries)]

    @property
    def _variables(self) -> list[Any]:
        """What is trained, as far as it is known as a variable."""
        keys = dict.fromkeys([*self._sums.gradients, *(one.key for one in self._sums.entries)])
        keys |= dict.fromkeys(r.key for r in self._view.variables.values() if r.trainable)
        variables = self._step.captured.variables
        return [variables[key] for key in keys if key in variables]

    def _shared(self) -> SharedRounds:
        cluster = workers_of(self._step.captured)
        assert cluster is not None, "its replicas are in several processes"
        variables = self._step.captured.variables
        trained = [name_of(key, variables.get(key)) for key in self._weights]
        lists = [part.operands[0] for one in self._sums.entries for part in one.lists]
        places = places_of(self._step, self._sums, [*map(names_of, self._gradients)])
        shared = rounds_of(
            cluster,
            self._variables,
            trained,
            self._options,
            [self._kind(one[0].inputs[0]) for one in self._gradients],
            [self._kind(one) for one in lists],
            [self._kind(one[0].inputs[0]) for one in self._others],
            (trained, [*places.values()]),
        )
        for key, own in places.items():
            of_weight = InRounds(shared, own, variables[key].shape)
            late_gradients_of(variables[key]).attach(shared.name, of_weight)
        return shared

    def _kind(self, value: Value) -> Kind:
        return self._view.stated(value), self._view.dtype(value)


def _call(
    at: Emitter,
    operands: list[Value],
    call: EagerCall,
    name: str,
    controls: Collection[str] = (),
) -> Value:
    attributes = {"token": call.token, "is_async": False, "Tout": [*call.types]}
    return at.op(EAGER_CALL, operands, name, controls=controls, **attributes)


def _alive(at: Emitter, after: Value, shared: SharedRounds) -> Value:
    """A sum of this worker alone: it raises TensorFlow's error once collectives are given up."""
    numbers = [at.constant(number) for number in (1, shared.group_of_one, 1)]
    return at.op(
        _SUM,
        [at.constant(0.0, dtypes.FLOAT32), *numbers],
        "alive",
        controls=[after.op],
        merge_op="Add",
        final_op="Id",
    )


def _sum_of_last_round(step: Step, edit: StepEdit, carried: Carried, shared: SharedRounds) -> None:
    """Hands what a sum takes in for the next round, and takes what the last one made of it."""
    first = carried[0]
    shape, dtype = step.view.shape(first.inputs[0]), step.view.dtype(first.inputs[0])
    if shape is None or tf.as_dtype(dtype).is_complex:
        raise WuShardError(
            f"{first.name} sums complex numbers, or what has another shape from step to step, and"
            " another sum is made into it; sum a real scalar, or keep it out of the step"
        )
    at = edit.at(0, f"{first.name}/said")
    # Each process numbers its graphs by itself.
    name = f"{re.sub('[0-9]+', '', step.graph.name)}/{first.name}"
    made = _call(at, [added(at, carried)], shared.said(name, shape, dtype), "call")
    for copy, op in enumerate(carried):
        at = edit.at(copy, f"{op.name}/said")
        edit.replace_op(op.name, at.op("EnsureShape", [made], "sum", shape=shape))


def _count(
    step: Step, edit: StepEdit, carried: Carried, shared: SharedRounds, steps: Mapping[str, str]
) -> None:
    """Lets a worker that has a batch go on without asking whether others have one.

    It is asked after the steps before it, as the program has it: an iterator is no variable of
    theirs, and TensorFlow would do both at once.

    Args:
        step: The function.
        edit: What is changed in it.
        carried: The sum of batches.
        shared: The rounds.
        steps: The ops by which steps are taken, by name, and what is to be waited for of each.
    """
    first = carried[0]
    at = edit.at(0, f"{first.name}/has_batch")
    after = _behind(step.view, [*carried])
    waits = {waited for name, waited in steps.items() if name not in after}
    call = shared.has_batch(step.view.dtype(first.inputs[0]))
    made = _call(at, [added(at, carried)], call, "call", controls=waits)
    shape = step.view.shape(first.inputs[0])
    if shape is not None:
        made = at.op("EnsureShape", [made], "count", shape=shape)
    for op in carried:
        edit.replace_op(op.name, made)


def _gathering(view: GraphView, sums: StepSums) -> list[Op]:
    """The ops that put the entries of sparse gradients together."""
    parts = [part for one in sums.entries for part in one.parts.values()]
    return [view.ops[name] for part in parts for name in part.carriers]


def _checked(at: Emitter, value: Value, dims: Any, controls: list[str]) -> Value:
    if dims is None:
        return at.op("Identity", [value], "sum", controls=controls)
    shape = [-1 if size is None else size for size in dims]
    return at.op("EnsureShape", [value], "sum", shape=shape, controls=controls)


def _behind(view: GraphView, sums: list[Op]) -> set[str]:
    """Names of the ops that take what sums yield, or wait for them.

    Sums themselves wait for each other by their order token.
    """
    names = {op.name for op in sums}
    following: dict[str, list[str]] = {}
    for op in view:
        before = {value.op for value in op.inputs} | (set() if op.name in names else {*op.controls})
        for name in before:
            following.setdefault(name, []).append(op.name)
    start = [name for one in names for name in following.get(one, [])]
    return {*reachable(start, lambda name: following.get(name, []))}
