"""A model's layers, and what of each one's weights and slots is sharded, or would be."""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras

from tf_wu_shard.config import ShardingOptions, current_options
from tf_wu_shard.dtypes import item_bytes
from tf_wu_shard.errors import OptionError
from tf_wu_shard.estimation.estimate import analysis_of
from tf_wu_shard.estimation.grounds import ground_of, is_on_tpus, live_ground, replicas_of
from tf_wu_shard.estimation.optimizer_step import makes_dense, optimizer_of, trace
from tf_wu_shard.estimation.weights import TrainedWeight, number_of, trained_weights
from tf_wu_shard.inspection.steps.planning import planned
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.report.published import latest_on
from tf_wu_shard.report.quantities import byte_text
from tf_wu_shard.report.report import Report, held_lines, share_text
from tf_wu_shard.report.summary import bytes_on_fullest_replica
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private import traced_graphs
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable

_DEFAULT_REPLICAS = 8
_LEAST_LENGTH = 60
# A column for reasons holds the longest words of them.
_LEAST_REASON = 24
_HEADER = ("Layer (type), variable", "Shape", "Weight", "Slots")


@dataclasses.dataclass(frozen=True)
class _State:
    """What the lines are made of.

    Attributes:
        replicas: How many replicas share the updates.
        says: For each trained weight, by name, what is done to it, or why nothing is.
        slots: The optimizer's variables of one dimension at least.
        cut: How those are cut that live in shards, or would, by key.
        traced: Whether that is so, as a step has been traced.
        verdict: How much is sharded, and what holds most of the rest back.
    """

    replicas: int
    says: Mapping[str, str]
    slots: tuple[UpdatedVariable, ...]
    cut: Mapping[str, AnyLayout]
    traced: bool
    verdict: tuple[str, ...]


def summary(
    model: keras.Model,
    optimizer: Any = None,
    num_replicas: int | None = None,
    *,
    topology: str | None = None,
    line_length: int | None = None,
    print_fn: Callable[[str], Any] | None = None,
) -> None:
    """Prints a model layer by layer, as `model.summary()` does, with what is sharded of each.

    Below each layer, also those of nested models, stand its variables: shape, bytes of the weight,
    bytes of its slots as they are without sharding and on the fullest of N replicas, and how the
    update is cut, or why it is left alone. That is what the report says and the slots really take
    where a step of this model has been traced with the flag on; else it is what would be, as
    `tf_wu_shard.estimate` finds it, and the first line says so. The model and its optimizer are
    only looked at.

    Args:
        model: A built Keras model.
        optimizer: Where the model is not compiled: as in `tf_wu_shard.estimate`.
        num_replicas: For how many replicas to plan where no step has been traced; None for those
            that the model's variables live on, 8 where they live on one device.
        topology: The TPU slice to plan for, as in `tf_wu_shard.estimate`; None for the model's own,
            or for replicas of one process where it lives on one device.
        line_length: Characters of a line, at least 60; 100 if None.
        print_fn: What takes each line, `print` if None.

    Raises:
        OptionError: The model is not built, trains nothing or has no optimizer, or an argument is
            none of these.
    """
    length = 100 if line_length is None else line_length
    if length < _LEAST_LENGTH:
        raise OptionError(f"line_length must be at least {_LEAST_LENGTH}, not {line_length}")
    own = getattr(model, "optimizer", None)
    chosen = optimizer if optimizer is not None else own
    if chosen is None:
        raise OptionError("the model is not compiled: give the optimizer that is to train it")
    weights, _ = trained_weights(model, None)
    found = _reported(model) if chosen is own else None
    if found is not None:
        state = _traced(model, weights, *found)
    else:
        state = _planned(model, optimizer_of(chosen), weights, num_replicas, topology)
    # Everything is known before the first line is printed.
    for line in [*_lines(model, weights, state, length)]:
        (print_fn or print)(line)


def report_of(model: keras.Model) -> Report | None:
    """The newest report of a step that trains a model and nothing else; None where there is none.

    Args:
        model: A compiled model.
    """
    found = _reported(model)
    return None if found is None else found[0]


def _reported(model: keras.Model) -> tuple[Report, Mapping[str, Any]] | None:
    """The same, and the live variables by the names that it gives them."""
    optimizer = (v.value for v in model.optimizer.variables)
    return latest_on((v.value for v in model.trainable_variables), optimizer)


def _layout(variable: keras.Variable) -> AnyLayout | None:
    """How a live variable is cut; None where it is whole."""
    components = getattr(variable.value, "values", None)
    if components is None:
        return None
    slot = sharded_slot_of(original_handle(components[0]))
    return slot.layout if slot is not None else None


def _traced(
    model: keras.Model,
    weights: Sequence[TrainedWeight],
    report: Report,
    variables: Mapping[str, Any],
) -> _State:
    """What there is after a traced step, given its report and the variables that it names."""
    slots = [v for v in model.optimizer.variables if v.shape.rank]
    layouts = {slot.path: _layout(slot) for slot in slots}
    trained = zip(model.trainable_variables, weights, strict=True)
    names = {id(variable.value): weight.name for variable, weight in trained}
    named = {name: names[id(variable)] for name, variable in variables.items()}
    return _State(
        replicas=report.num_replicas or replicas_of(model.trainable_variables[0].value),
        says=_says(weights, report, named),
        slots=tuple(
            UpdatedVariable(v.path, (), tuple(v.shape), number_of(v.dtype), True) for v in slots
        ),
        cut={path: layout for path, layout in layouts.items() if layout is not None},
        traced=True,
        verdict=_verdict(report),
    )


def _planned(
    model: keras.Model,
    optimizer: Any,
    weights: Sequence[TrainedWeight],
    num_replicas: int | None,
    topology: str | None,
) -> _State:
    """What there would be after one."""
    first = model.trainable_variables[0].value
    live = replicas_of(first) > 1 and topology is None and num_replicas is None
    replicas = num_replicas or (replicas_of(first) if live else _DEFAULT_REPLICAS)
    if topology is not None or (live and is_on_tpus(first)) or makes_dense(optimizer):
        weights = [dataclasses.replace(weight, sparse=False) for weight in weights]
    with traced_graphs.no_garbage_collection():
        step = trace(optimizer, weights)
        if live:
            ground = live_ground(first, step.gradients)
        else:
            ground = ground_of(replicas, topology, step.gradients)
        options = current_options() or ShardingOptions()
        sharding = planned(analysis_of(step, weights, ground), ground, replicas, options)
    report = sharding.report("summary")
    return _State(
        replicas=replicas,
        says=_says(weights, report, {weight.name: weight.name for weight in weights}),
        slots=(*step.slots, *step.accumulators),
        cut={slot.variable: slot.layout for v in sharding.plan.variables for slot in v.slots},
        traced=False,
        verdict=_verdict(report),
    )


def _verdict(report: Report) -> tuple[str, ...]:
    return f"Sharded: {share_text(report) if report.variables else 'nothing'}", *held_lines(report)


def _says(
    weights: Sequence[TrainedWeight], report: Report, names: Mapping[str, str]
) -> dict[str, str]:
    """What a report says of each weight, whose name is found by the report's."""
    found = dict.fromkeys((w.name for w in weights), "no gradient of it is summed over replicas")
    for variable in report.variables:
        whole = f", whole {variable.whole}" if variable.whole else ""
        gathered = f", gathered in {variable.gathered_in}" if variable.gathered_in else ""
        found[names[variable.name]] = f"{variable.layout}{gathered}{whole}"
    for left in report.left_alone:
        found[names.get(left.name, left.name)] = f"left alone: {left.reason}"
    return found


def _lines(
    model: keras.Model, weights: Sequence[TrainedWeight], state: _State, length: int
) -> Iterator[str]:
    is_so = "as the traced step does it" if state.traced else "as it would be: no step is traced"
    yield f'Model: "{model.name}"   {state.replicas} replicas, {is_so}'
    trained = {
        id(variable): weight
        for variable, weight in zip(model.trainable_variables, weights, strict=True)
    }
    owned, rest = _owned(weights, state.slots)
    rows: list[tuple[str, ...] | None] = []
    for depth, layer, own in _layers(model):
        indent = "  " * depth
        rows.append((f"{indent}{layer.name} ({type(layer).__name__})",))
        for variable in own:
            found = trained.get(id(variable))
            slots = owned.get(found.name, ()) if found else ()
            rows.append(
                (
                    f"{indent}  {variable.name}",
                    str(tuple(variable.shape)),
                    byte_text(math.prod(variable.shape) * item_bytes(number_of(variable.dtype))),
                    _change(slots, state),
                    state.says[found.name] if found else "not trained",
                )
            )
    if rest:
        rows.append(("the optimizer's own",))
        for slot in rest:
            says = "in shards" if slot.key in state.cut else "whole"
            rows.append((f"  {slot.key}", str(slot.shape), "", _change([slot], state), says))
    yield from _table([row for row in rows if row is not None], length)
    all_weights = sum(math.prod(w.shape) * item_bytes(w.type_number) for w in weights)
    yield f"Trained weights: {byte_text(all_weights)}"
    yield f"Optimizer slots of a replica: {_change(state.slots, state)}"
    for line in state.verdict:
        yield from textwrap.wrap(line, length)


def _layers(
    model: keras.layers.Layer,
) -> Iterator[tuple[int, keras.layers.Layer, list[keras.Variable]]]:
    """Layers that hold variables, those that hold some of their own: depth, layer, these."""
    seen: set[int] = set()

    def under(
        layer: keras.layers.Layer, depth: int
    ) -> Iterator[tuple[int, keras.layers.Layer, list[keras.Variable]]]:
        children = [c for c in layer._flatten_layers(include_self=False, recursive=False)]
        theirs = {id(v) for child in children for v in child.variables}
        own = [v for v in layer.variables if id(v) not in theirs | seen and v.dtype != "string"]
        fresh = [c for c in children if any(id(v) not in seen for v in c.variables)]
        if depth >= 0 and (own or fresh):
            yield depth, layer, own
        elif own:
            yield 0, layer, own
        seen.update(map(id, own))
        for child in fresh:
            yield from under(child, depth + 1)

    yield from under(model, -1)


def _owned(
    weights: Sequence[TrainedWeight], slots: Iterable[UpdatedVariable]
) -> tuple[dict[str, list[UpdatedVariable]], list[UpdatedVariable]]:
    """The slots of each weight, and those of which the name does not show the weight.

    Keras puts the weight's path before a slot's own name, in which TensorFlow puts "_" for what no
    op's name may hold. Where that gives two weights one name, nothing shows whose a slot is.
    """
    names = [(_plain(weight.name), weight.name) for weight in weights]
    counted = collections.Counter(plain for plain, _ in names)
    prefixes = {plain: name for plain, name in names if counted[plain] == 1}
    paths = {name for _, name in names}
    found: dict[str, list[UpdatedVariable]] = {}
    rest = []
    for slot in slots:
        if slot.key.endswith("/accumulator") and slot.key.rpartition("/")[0] in paths:
            found.setdefault(slot.key.rpartition("/")[0], []).append(slot)
            continue
        words = _plain(slot.key.rpartition("/")[2]).split("_")
        starts = ("_".join(words[:count]) for count in range(len(words) - 1, 0, -1))
        prefix = next((start for start in starts if start in prefixes), None)
        if prefix is None:
            rest.append(slot)
        else:
            found.setdefault(prefixes[prefix], []).append(slot)
    return found, rest


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _change(slots: Iterable[UpdatedVariable], state: _State) -> str:
    """Bytes of slots, whole and on the fullest replica; "-" where there are none."""
    held = bytes_on_fullest_replica(slots, state.cut, state.replicas)
    if not held.unsharded:
        return "-"
    before, after = byte_text(held.unsharded), byte_text(held.sharded)
    return before if held.unsharded == held.sharded else f"{before} -> {after}"


def _table(rows: Sequence[tuple[str, ...]], length: int) -> Iterator[str]:
    """Rows of a name, or of five cells; the last is wrapped, others are cut where they must be."""
    full = [row for row in rows if len(row) > 1]
    most = length // 3
    widths = [
        min(most, max(map(len, (head, *(row[column] for row in full)))))
        for column, head in enumerate(_HEADER)
    ]
    widths[0] = max(widths[0], min(most, max(len(row[0]) for row in rows)))
    last = length - sum(widths) - 2 * len(widths)
    below = last < _LEAST_REASON
    if below:
        # What it says then stands on lines of its own.
        widths[0] = max(12, length - sum(widths[1:]) - 2 * (len(widths) - 1))
    yield "_" * length
    yield _line((*_HEADER, "" if below else "Sharded"), widths)
    yield "=" * length
    for row in rows:
        if len(row) == 1:
            yield row[0][:length]
            continue
        texts = textwrap.wrap(row[-1], length - 8 if below else last)
        yield _line((*row[:-1], "" if below else texts.pop(0)), widths)
        for text in texts:
            yield " " * (8 if below else length - last) + text
    yield "_" * length


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        f"{cell if len(cell) <= width else cell[: width - 3] + '...':<{width}}"
        for cell, width in zip(cells, widths, strict=False)
    ]
    return "  ".join((*padded, cells[-1])).rstrip()
