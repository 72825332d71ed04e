"""Lets a strategy on logical CPUs trace, and run, the step that it would on GPUs with NCCL.

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    emitted = stand_in_for_nccl(strategy)

What is rewritten is what GPUs get, but for the names of the devices; before it is run, what only
NCCL has is done by ops that CPUs have. It is for a process of its own: nothing is taken back.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import tensorflow as tf

from tests.nccl.lowering import without_reduce_scatters
from tf_wu_shard.grounds.collective import group
from tf_wu_shard.step import swap

_NCCL = tf.distribute.experimental.CommunicationImplementation.NCCL


def stand_in_for_nccl(strategy: tf.distribute.Strategy) -> collections.Counter[str]:
    """Takes the devices of a strategy for GPUs, as far as collectives go.

    Args:
        strategy: A MirroredStrategy, or a MultiWorkerMirroredStrategy, that has traced nothing yet.

    Returns:
        Counts the collectives, by type, that were emitted for NCCL from then on.
    """
    hinted = tf.distribute.experimental.CommunicationOptions(implementation=_NCCL)
    all_reduce = getattr(strategy.extended, "_collective_ops", None) or (
        strategy.extended._cross_device_ops
    )
    # What a strategy passes on with each sum overrules what its all-reduce has.
    strategy.extended._communication_options = hinted
    all_reduce._options = hinted
    for launcher in all_reduce._launchers:
        launcher._options = hinted
    emitted: collections.Counter[str] = collections.Counter()
    rebuild = vars(swap)["rebuild"]

    def lowered(graph: Any, body: Any, **others: Any) -> Any:
        emitted.update(node.op for node in body.nodes if node.op.startswith("Collective"))
        nodes = without_reduce_scatters(body.nodes)
        return rebuild(graph, dataclasses.replace(body, nodes=nodes), **others)

    vars(swap)["rebuild"] = lowered
    vars(group)["runs_by_nccl"] = lambda hint, device: hint == b"nccl"
    return emitted
