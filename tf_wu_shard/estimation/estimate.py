"""How much memory and traffic a training takes, sharded and not, before it is run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from tf_wu_shard.config import ShardingOptions, current_options
from tf_wu_shard.dtypes import item_bytes
from tf_wu_shard.errors import OptionError
from tf_wu_shard.estimation.grounds import ground_of
from tf_wu_shard.estimation.optimizer_step import (
    OptimizerStep,
    makes_dense,
    optimizer_of,
    trace,
)
from tf_wu_shard.estimation.result import Estimate, ReplicaEstimate
from tf_wu_shard.estimation.weights import TrainedWeight, number_of, trained_weights
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.inspection.steps.planning import planned
from tf_wu_shard.report.summary import bytes_on_fullest_replica
from tf_wu_shard.tensorflow_private import traced_graphs
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis, UpdatedVariable
from tf_wu_shard.weight_update.sharding import Sharding


def estimate(
    model: Any,
    optimizer: Any,
    num_replicas: int | Iterable[int] = 8,
    *,
    topology: str | None = None,
    options: ShardingOptions | None = None,
    sparse: Collection[str] | None = None,
) -> Estimate:
    """Says what training takes, for any number of replicas; makes no strategy and no variable.

    A copy of the optimizer is traced on names and shapes, and the update planned as the pass would
    plan it, small variables, padding, owners and all, for replicas in one process or on a TPU
    slice. With P bytes of weights and gradients and S of slots over N replicas, and nothing left
    alone or padded, that makes on each replica (arXiv 2004.13336, section 4; in arXiv 1910.02054,
    section 5, it is P_os with the gradients' sum in shards as well)::

        slots                    S            ->  S / N
        gradients' sum           P            ->  P / N
        own gradients            P            ->  P
        weights, in one process  P            ->  P
        weights, on a TPU        P            ->  P / N
        wire                     2 P (N-1)/N  ->  P (N-1)/N + P (N-1)/N

    The wire is a ring all-reduce, and a reduce-scatter and an all-gather in its place. What a
    weight gathered in bfloat16 and tensors put together for matrix functions add or save on the
    wire is counted, activations and temporary buffers are not.

    Args:
        model: A built Keras model; or a mapping from each weight's name to its shape, or to a pair
            of its shape and its dtype ("float32" if left out).
        optimizer: A Keras optimizer, which is not built or changed, its class, or its name
            ("adam", "lion"), with Keras's defaults.
        num_replicas: How many replicas, at least 2; or several such numbers, for a row each.
        topology: The TPU slice that the replicas are, such as "v5e:4x4"; "unknown" for TPU cores
            whose places are not known; None where replicas share a process.
        options: How the update would be sharded; None for what the flag says, the defaults where
            it is off.
        sparse: Names of the weights whose gradients are sparse. None takes the tables of a model's
            Embedding layers; a table that something else reads as well has a dense gradient.

    Returns:
        The estimate; print it, or take `.to_json()`.

    Raises:
        OptionError: An argument is none of these; the optimizer cannot be made again from its
            configuration, or updates weights inside of a branch.
    """
    numbers = _numbers(num_replicas)
    weights, others = trained_weights(model, sparse)
    made = optimizer_of(optimizer)
    # XLA's all-reduce takes dense tensors: TPUStrategy makes every gradient one.
    if topology is not None or makes_dense(made):
        weights = tuple(dataclasses.replace(weight, sparse=False) for weight in weights)
    wanted = options or current_options() or ShardingOptions()
    with traced_graphs.no_garbage_collection():
        step = trace(made, weights)
        grounds = [ground_of(number, topology, step.gradients) for number in numbers]
        analysis = analysis_of(step, weights, grounds[0])
        rows = tuple(
            row_of(step, weights, planned(analysis, ground, number, wanted))
            for ground, number in zip(grounds, numbers, strict=True)
        )
    return Estimate(
        optimizer=step.name,
        variables=len(weights),
        elements=sum(math.prod(weight.shape) for weight in weights),
        gradient_bytes=sum(_size(w.shape, w.dtype) for w in weights if not w.sparse),
        other_bytes=sum(_size(*other) for other in others),
        counter_bytes=sum(_size(*counter) for counter in step.counters),
        rows=rows,
        notes=tuple(notes_on(weights, step, topology)),
    )


def _numbers(given: int | Iterable[int]) -> tuple[int, ...]:
    numbers = tuple(given) if isinstance(given, Iterable) else (given,)
    if not numbers or any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
        raise OptionError(f"num_replicas must be an integer, or several of them, not {given!r}")
    return numbers


def analysis_of(step: OptimizerStep, weights: Sequence[TrainedWeight], ground: Dialect) -> Analysis:
    """Analyses the update of a step, which is then planned for any number of replicas.

    Args:
        step: The traced update.
        weights: What it updates.
        ground: Where replicas would run, however many.
    """
    read_as = {weight.name: weight.read_as for weight in weights}
    analysis = analyze(step.view, ground)
    updates = tuple(
        dataclasses.replace(
            update,
            variables=tuple(
                dataclasses.replace(v, read_as=read_as.get(v.key, v.read_as))
                for v in update.variables
            ),
        )
        for update in analysis.updates
    )
    return dataclasses.replace(analysis, updates=updates)


def row_of(
    step: OptimizerStep,
    weights: Sequence[TrainedWeight],
    sharding: Sharding,
) -> ReplicaEstimate:
    """Says what a replica holds, sends and receives.

    Args:
        step: The traced update.
        weights: What it updates.
        sharding: What is done to it.
    """
    plan = sharding.plan
    number = plan.num_replicas
    report = sharding.report("estimate")
    own = [UpdatedVariable(w.name, (), w.shape, w.type_number, False) for w in weights]
    dense = {w.name for w in weights if not w.sparse}
    slots = {slot.variable: slot.layout for v in plan.variables for slot in v.slots}
    cut = {weight.variable: weight.layout for v in plan.variables for weight in v.sharded_weights}
    gradients = {weight.key: v.layout for v in plan.variables for weight in v.update.weights}
    summed = [weight for weight in own if weight.key in dense]
    return ReplicaEstimate(
        num_replicas=number,
        weights=bytes_on_fullest_replica(own, cut, number),
        slots=bytes_on_fullest_replica([*step.slots, *step.accumulators], slots, number),
        summed_gradients=bytes_on_fullest_replica(summed, gradients, number),
        wire=report.wire_bytes,
        report=report,
    )


def _size(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * item_bytes(number_of(dtype))


def notes_on(
    weights: Sequence[TrainedWeight], step: OptimizerStep, topology: str | None
) -> Iterator[str]:
    """What an estimate does not count, or takes for granted."""
    tables = [weight.name for weight in weights if weight.sparse]
    if tables:
        yield (
            f"gradients of {', '.join(tables)} are taken for sparse: they are as large as what a"
            " batch looks up, and not counted"
        )
    if step.accumulators:
        yield "each replica accumulates gradients of its own: that stays whole"
    if step.accumulators and topology is None:
        yield "Keras accumulates no gradients where replicas share a process: it raises an error"
