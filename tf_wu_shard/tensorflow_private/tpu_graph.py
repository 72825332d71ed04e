"""Whose variables enter the TPU cluster of a traced function.

A variable enters a cluster through a TPUReplicatedInput, which does not say whose handle it is;
the moment it is made is the only one at which that is known.
"""

from __future__ import annotations

from typing import Any

from tensorflow.python.distribute import packed_distributed_variable, tpu_values, values
from tensorflow.python.tpu import tpu_replication

from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.tensorflow_private.wrapping import wrap_once

_RECORD = "_wu_shard_tpu_variables"


def install() -> None:
    """Notes whose handles enter TPU clusters from now on; a second call changes nothing."""

    def get_replicated_var_handle(
        original: Any,
        context: Any,
        name: Any,
        handle_id: Any,
        vars_: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        handle = original(context, name, handle_id, vars_, *args, **kwargs)
        graph = handle.graph
        if not hasattr(graph, _RECORD):
            setattr(graph, _RECORD, {})
        getattr(graph, _RECORD)[handle.op.name] = vars_
        return handle

    owner = tpu_replication.TPUReplicateContext
    wrap_once(owner, "get_replicated_var_handle", get_replicated_var_handle)


def replicated_variables(graph: Any) -> dict[str, Any]:
    """The distributed variables whose handles enter a function's TPU cluster.

    Args:
        graph: The FuncGraph that holds the cluster.

    Returns:
        By the name of the TPUReplicatedInput that a handle enters through; without those of
        which the distributed variable is no longer known.
    """
    found: dict[str, Any] = {}
    for name, parts in getattr(graph, _RECORD, {}).items():
        variable = _distributed(parts)
        if variable is not None:
            found[name] = variable
    return found


def is_mirrored(variable: Any) -> bool:
    """Whether all replicas hold the same value of a distributed variable."""
    return bool(variable._is_mirrored())


def is_on_tpus(variable: Any) -> bool:
    """Whether a variable is a TPUStrategy's."""
    return isinstance(variable, tpu_values.TPUVariableMixin)


def is_packed(handle: Any) -> bool:
    """Whether a handle stands for a resource on each of several devices."""
    return bool(getattr(handle, "is_packed", False))


def packed_handle(variable: Any) -> Any | None:
    """The packed handle of a distributed variable's components, or None where they are apart."""
    packed = vars(variable).get("_packed_var")
    return None if packed is None else packed._handle


def _distributed(parts: Any) -> Any | None:
    first = parts[0]
    if isinstance(first, packed_distributed_variable.PackedDistributedVariable):
        first = first._distributed_variables[0]
    if isinstance(first, values.DistributedVariable):
        return first
    reference = getattr(original_handle(first), "_distributed_container", None)
    return reference() if reference is not None else None
