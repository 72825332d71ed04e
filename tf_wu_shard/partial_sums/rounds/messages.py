"""What the user of rounds is told while a program runs."""

from __future__ import annotations

WAITS_FOR_BATCHES = (
    "tf_wu_shard: next(iterator) outside of a tf.function asks all workers whether they have a"
    " batch, so that every step waits for all of them after all. Take the batch inside of the step"
    " (next(iterator) in the tf.function), or repeat() the dataset"
)

GOES_ON = (
    "flush_partial_sums was called on this worker, or a checkpoint is written or restored there,"
    " and another one takes its next step: do it on all workers, after as many steps on each"
)

LOST = (
    "what is late cannot be handed in by all workers, as flush_partial_sums, a checkpoint or a"
    " saved model need it: another worker has ended, or has failed"
)

IS_LEFT = (
    "tf_wu_shard: what is late is not in the weights, and is added to the next step's sum: the"
    " update follows from more than gradients and variables, or the shape of a gradient is not"
    " known, so that it cannot run by itself. Take one more step, on a batch of any kind, or let no"
    " update follow from what a step is given"
)

WAITS_FOR_OTHERS = (
    "tf_wu_shard: this worker is in flush_partial_sums, or writes or restores a checkpoint, and"
    " waits for others to do the same: what is late is summed over all workers"
)

OTHER_SHAPES = (
    "what is summed beside gradients has another shape from step to step, %s and %s: of a worker"
    " that is late its last value counts, which must have the shape that the others' have; sum a"
    " mean or a total of each replica, not a value of each example"
)

IS_LOST = (
    "tf_wu_shard: the program ends, and gradients that are late are not in the weights: call"
    " tf_wu_shard.flush_partial_sums() on all workers after the last step"
)

OTHER_ROUNDS = (
    "tf_wu_shard: several functions train the same weights, and sum other things beside gradients,"
    " list the weights in another order, or have other options. Each has rounds of its own: what is"
    " late of one comes in its own next step, or with flush_partial_sums()"
)
