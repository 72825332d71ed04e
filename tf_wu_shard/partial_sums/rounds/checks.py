"""Which steps may be summed in rounds, and which of them had better not be."""

from __future__ import annotations

from absl import logging

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.partial_sums.options import PartialSums
from tf_wu_shard.partial_sums.rounds.calls import calls_of_rounds
from tf_wu_shard.partial_sums.rounds.carried import Carried, sums_of_workers
from tf_wu_shard.partial_sums.steps.batch_flow import BatchFlow
from tf_wu_shard.partial_sums.steps.effects import check_gradients, check_updates
from tf_wu_shard.partial_sums.steps.entries import following
from tf_wu_shard.partial_sums.steps.sums import StepSums
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.step.accesses import accesses
from tf_wu_shard.step.step import Step

_MOMENTUM = (
    "tf_wu_shard: PartialSums(mode='solo') sums most gradients late, and the optimizer goes on for"
    " many steps by what it keeps of them (%s): trainings have diverged that way. Compare the loss"
    " with mode='majority', lower max_staleness (%d) or the learning rate"
)


def check(step: Step, sums: StepSums, counts: set[str]) -> None:
    """Raises WuShardError where a step is none for rounds.

    Args:
        step: The step.
        sums: Its sums.
        counts: The carriers of those that count batches; the step knows their results by itself.
    """
    view = step.view
    check_nothing_waits(step)
    others = [one for one in sums.others if counts.isdisjoint(one.carriers)]
    flow = BatchFlow(view, [], sums.of_weights, others)
    check_gradients(flow, sums.of_weights)
    check_updates(view, flow)
    _check_others(view, flow)


def check_nothing_waits(step: Step) -> None:
    """Raises WuShardError where a function waits for all workers by anything but a sum.

    Args:
        step: The function.
    """
    view, of_workers = step.view, {op.name for op in sums_of_workers(step)}
    refused = [one for one in step.refused if one.where not in of_workers]
    if refused:
        raise WuShardError(
            f"of a sum over replicas, {refused[0].where}, {refused[0].reason}; sum one value of"
            " each replica, and write it to no trainable variable"
        )
    carriers = {carrier for one in step.reductions for carrier in one.carriers} | of_workers
    for op in view:
        if op.type.startswith("Collective") and op.name not in carriers and op.name in view.live:
            raise WuShardError(f"{op.name} ({op.type}) waits for all workers, and is no sum")


def check_is_not_handed_on(view: GraphView, carried: Carried) -> None:
    """Raises WuShardError where a function hands what it sums to a step in rounds that it calls.

    What it has of it is of the round before, and the step's gradients would follow from it.

    Args:
        view: The function.
        carried: The sum.
    """
    steps = {*calls_of_rounds(view)}
    sums = [result for op in carried for result in view.results(op.name)]
    for value in reachable(sums, lambda value: following(view, value)):
        for op, _ in view.consumers(value):
            if op.name in steps:
                raise WuShardError(
                    f"{carried[0].name}, a sum over replicas, is handed to a step that is summed in"
                    " rounds, and would be of another round than its gradients; such as a number of"
                    " tokens that they are divided by, or a mean of all batches"
                )


def warn_of_momentum(view: GraphView, sums: StepSums, options: PartialSums) -> None:
    """Says once that what is late comes with a weight that it is not due any more."""
    if options.mode != "solo":
        return
    flow = BatchFlow(view, [], sums.of_weights, [])
    slots = [
        view.variables[op.inputs[0].op]
        for op in view
        if op.type in WRITES and flow.of_op(op) and op.inputs[0].op in view.variables
    ]
    for ref in slots:
        if not ref.trainable:
            logging.log_first_n(logging.WARNING, _MOMENTUM, 1, ref.name, options.max_staleness)
            return


def _check_others(view: GraphView, flow: BatchFlow) -> None:
    """Raises WuShardError where a weight is updated with a sum that is not seen to be a gradient.

    Of those the last one of a late worker is handed in, and nothing is added up.
    """
    handles = {op.inputs[0].op for op in view if op.type in WRITES and flow.of_op(op) & flow.joined}
    reads = [
        result
        for handle in handles
        if handle in view.variables and not view.variables[handle].trainable
        for access in accesses(view, handle)
        if access.op.type not in WRITES
        for result in view.results(access.op.name)
    ]
    updates = [op for op in view if op.type in WRITES and flow.of_op(op) & flow.joined]
    updates += [
        op
        for value in reachable(reads, lambda value: following(view, value))
        for op, _ in view.consumers(value)
        if op.type in WRITES
    ]
    for op in updates:
        ref = view.variables.get(op.inputs[0].op)
        if ref is not None and ref.trainable:
            raise WuShardError(
                f"{ref.name} is updated with a sum over the replicas that is not seen to be its"
                " gradient, so that nothing can be added to what came too late of it"
            )
