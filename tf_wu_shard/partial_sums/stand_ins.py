"""Sees to it that no step trains on a batch that only stands in for one that was not ready."""

from __future__ import annotations

from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.lateness import LateTensor
from tf_wu_shard.partial_sums.options import FLAG
from tf_wu_shard.tensorflow_private import creating_traces, function_graph, marked_batches
from tf_wu_shard.tensorflow_private.distributed_variables import is_exporting


def install() -> None:
    """Lets strategies take batches that may be stand-ins apart; may be called again."""
    said = marked_batches.Said(LateTensor, lambda one: (one.value, one.late), _outside_of_functions)
    marked_batches.install(said)


def check_stand_ins(graph: Any) -> None:
    """Raises WuShardError if a function takes batches that may be stand-ins for real ones.

    Of a function that makes variables TensorFlow makes another trace, which is the one that counts.

    Args:
        graph: The FuncGraph as it was traced, after all passes.
    """
    if not marked_batches.marks_of(graph):
        return
    if is_exporting() or creating_traces.makes_variables(graph):
        return
    raise WuShardError(
        f"{function_graph.title(graph)} gets batches from a deadline_dataset, some of which only"
        " stand in for others, and would take them for real ones: with the flag"
        f" {FLAG!r} on, it is to sum gradients over replicas, outside of branches;"
        " give an evaluation the dataset itself"
    )


def _outside_of_functions() -> WuShardError:
    return WuShardError(
        "a step outside of tf.function gets batches from a deadline_dataset, some of which only"
        " stand in for others, and would take them for real ones; run it in a tf.function, or"
        " compile the model without run_eagerly"
    )
