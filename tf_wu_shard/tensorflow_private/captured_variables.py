"""Which variables a traced function uses: those by captured handles or through a TPU cluster."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorflow.python.distribute import values

from tf_wu_shard.tensorflow_private import function_graph, tpu_graph
from tf_wu_shard.tensorflow_private.distributed_variables import (
    distributed_variable_of,
    replicas_elsewhere,
)
from tf_wu_shard.tensorflow_private.variable_paths import path_of


class CapturedVariable(NamedTuple):
    """A handle inside of a function, and what is known of the variable behind it.

    Attributes:
        placeholder: Name of the op that yields the handle.
        variable: The distributed variable; None where it is of none.
        replica: Which of its components the handle is of; 0 where it stands for all.
        num_replicas: How many components it has; 1 where the handle stands for all.
        shape: Its static shape; None where a dimension is open.
        dtype: Its DataType number; 0 where that is not known.
        mirrored: Whether all replicas hold the same value of it.
        device: The device that the component lives on; "" where the handle stands for all.
        stands_for_all: Whether it is the handle in a TPU program, which is of all components.
        replicas_elsewhere: How many components it has in other processes.
        name: The variable's name where it is no distributed one and that is known, or "".
    """

    placeholder: str
    variable: Any | None
    replica: int
    num_replicas: int
    shape: tuple[int, ...] | None
    dtype: int
    mirrored: bool
    device: str
    stands_for_all: bool = False
    replicas_elsewhere: int = 0
    name: str = ""


def captured_variables(graph: Any) -> list[CapturedVariable]:
    """The variables that a FuncGraph uses, in the order in which it captured them.

    Args:
        graph: The FuncGraph.
    """
    found = []
    names = _plain_names(graph)
    for handle, placeholder in function_graph.captured_handles(graph):
        name = placeholder.op.name
        shape, dtype = function_graph.handle_shape_and_type(placeholder)
        known = distributed_variable_of(handle)
        if known is None:
            mirrored = not function_graph.is_replica_local(handle)
            device = getattr(handle, "device", "")
            found.append(
                CapturedVariable(
                    *(name, None, 0, 1, shape, dtype, mirrored, device),
                    name=names.get(id(handle), ""),
                )
            )
            continue
        variable, replica = known
        count, device = len(variable.values), variable.values[replica].device
        elsewhere = replicas_elsewhere(variable)
        found.append(
            CapturedVariable(
                *(name, variable, replica, count, shape, dtype, True, device),
                replicas_elsewhere=elsewhere,
            )
        )
    # One handle in a TPU program stands for all components.
    for name, variable in tpu_graph.replicated_variables(graph).items():
        shape = tuple(variable.shape) if variable.shape.is_fully_defined() else None
        dtype, mirrored = variable.dtype.as_datatype_enum, tpu_graph.is_mirrored(variable)
        found.append(CapturedVariable(name, variable, 0, 1, shape, dtype, mirrored, "", True))
    return found


def _plain_names(graph: Any) -> dict[int, str]:
    """The names of the plain variables that a FuncGraph reads, by the ids of their handles."""
    try:
        read = graph.variables
    except AssertionError:  # One of them is gone, and TensorFlow names none.
        return {}
    # A distributed one, as the state of a random generator may be, has no handle of its own.
    plain = (v for v in read if not isinstance(v, values.DistributedVariable))
    return {id(v.handle): path_of(v) for v in plain}
