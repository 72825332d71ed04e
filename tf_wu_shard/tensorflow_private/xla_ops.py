"""Ops that only a program for a TPU holds, for those who write such programs op by op."""

from tensorflow.compiler.tf2xla.ops.gen_xla_ops import (
    xla_all_reduce,
    xla_optimization_barrier,
    xla_reduce_scatter,
    xla_replica_id,
    xla_set_dynamic_dimension_size,
    xla_sharding,
)
from tensorflow.python.tpu.ops.tpu_ops import all_to_all, collective_permute, cross_replica_sum

__all__ = [
    "all_to_all",
    "collective_permute",
    "cross_replica_sum",
    "xla_all_reduce",
    "xla_optimization_barrier",
    "xla_reduce_scatter",
    "xla_replica_id",
    "xla_set_dynamic_dimension_size",
    "xla_sharding",
]
