"""Which ops TensorFlow can run where."""

from __future__ import annotations

import functools

from tensorflow.python.framework import kernels

# DEFAULT kernels run on any device.
_ON_CPU = frozenset({"CPU", "DEFAULT"})


@functools.cache
def has_cpu_kernel(op_type: str) -> bool:
    """Whether an op of this type can run on a CPU."""
    registered = kernels.get_registered_kernels_for_op(op_type).kernel
    return any(kernel.device_type in _ON_CPU for kernel in registered)
