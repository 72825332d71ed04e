"""What a TPU program is written of here is what the TPU's ground and the emulation know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.emulation.local_ops import LOCAL_OPS
from tf_wu_shard.grounds.tpu import ops
from tf_wu_shard.tensorflow_private import xla_ops


def types_of(name: str) -> set[str]:
    """The types of the ops that one of them makes of a vector."""
    made: dict[str, Callable[[Any], Any]] = {
        "all_to_all": lambda f: f(x, 0, 0, 1, groups),
        "collective_permute": lambda f: f(x, [[0, 0]]),
        "cross_replica_sum": lambda f: f(x, [[0]]),
        "xla_all_reduce": lambda f: f(x, groups, "Add", "CrossReplica"),
        "xla_optimization_barrier": lambda f: f([x]),
        "xla_reduce_scatter": lambda f: f(x, groups, 0, "Add"),
        "xla_replica_id": lambda f: f(),
        "xla_set_dynamic_dimension_size": lambda f: f(x, 0, 2),
        "xla_sharding": lambda f: f(x),
    }
    with tf.Graph().as_default() as graph:
        x, groups = tf.zeros((4,)), tf.constant([[0]])
        made[name](getattr(xla_ops, name))
    return {op.type for op in graph.get_operations()}


@pytest.mark.parametrize("name", xla_ops.__all__)
def test_each_makes_the_op_that_it_is_called_after(name: str) -> None:
    plain = name.replace("_", "")
    assert plain in {op_type.lower() for op_type in types_of(name)}


def test_sums_are_what_the_tpus_ground_takes_for_sums() -> None:
    assert ops.SUM in types_of("cross_replica_sum")


@pytest.mark.parametrize("name", ["xla_replica_id", "xla_sharding", "xla_optimization_barrier"])
def test_what_concerns_one_replica_is_emulated(name: str) -> None:
    assert types_of(name) & LOCAL_OPS.keys()
