"""Which distributed variable a resource handle belongs to, and who is asking for its value.

Answers: the `MirroredVariable` and replica behind a handle that a traced function captured, the
replica in whose context Python code is running, whether ops run at once or are being recorded.
It does not know how a variable is stored; see `sharded_variables` for that.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, values, values_util
from tensorflow.python.framework import ops
from tensorflow.python.saved_model import save_context

_VERSIONS = tf.distribute, tf.distribute.experimental, tf.compat.v1.distribute.experimental
_OF_SINGLE_VARIABLES = tuple(
    (name, getattr(version, name))
    for name in ("CentralStorageStrategy", "ParameterServerStrategy")
    for version in _VERSIONS
    if hasattr(version, name)
)


def distributed_variable_of(handle: Any) -> tuple[values.MirroredVariable, int] | None:
    """Finds the mirrored variable that a component's resource handle belongs to.

    Args:
        handle: An eager resource tensor, such as the outer side of a traced function's captures.

    Returns:
        The variable and the replica whose component has this handle; None for any other handle:
        of a plain variable, of one that is not mirrored (its copies may differ by design), or of
        a variable that no longer exists.
    """
    reference = getattr(handle, "_distributed_container", None)
    variable = reference() if reference is not None else None
    if not isinstance(variable, values.MirroredVariable):
        return None
    for replica, component in enumerate(variable.values):
        if original_handle(component) is handle:
            return variable, replica
    return None


def noted_on(variable: Any, name: str) -> Any | None:
    """What was noted on a distributed variable, as an attribute of its own; None if nothing was.

    Of an attribute that it does not have, it would ask its value: by ops that read the variable, in
    the function that is being traced, where they stay.
    """
    return vars(variable).get(name)


def has_distributed_variable(handle: Any) -> bool:
    """Whether a handle belongs to a component of some distributed variable; very cheap."""
    return getattr(handle, "_distributed_container", None) is not None


def num_components(handle: Any) -> int:
    """How many components the variable of a handle has, mirrored or not; 1 for a plain variable."""
    reference = getattr(handle, "_distributed_container", None)
    variable = reference() if reference is not None else None
    return len(getattr(variable, "values", ())) or 1


def replicas_elsewhere(variable: Any) -> int:
    """How many components a mirrored variable has in other processes.

    Args:
        variable: A `MirroredVariable`.
    """
    if not isinstance(variable, values.MirroredVariable):
        return 0
    return int(variable.distribute_strategy.num_replicas_in_sync) - len(variable.values)


def is_of_replicas(handle: Any) -> bool:
    """Whether a handle is of a mirrored variable of several replicas, in this process or others."""
    found = distributed_variable_of(handle)
    return found is not None and len(found[0].values) + replicas_elsewhere(found[0]) > 1


def strategy_of_single_variables() -> str | None:
    """The name of the strategy in scope if each of its variables exists once, for all replicas."""
    strategy = tf.distribute.get_strategy()
    return next((name for name, kind in _OF_SINGLE_VARIABLES if isinstance(strategy, kind)), None)


def original_handle(component: Any) -> Any:
    """The handle that a component variable was born with, sharded or not.

    Args:
        component: A `ResourceVariable`, possibly one whose class hides its handle from eager code.

    Returns:
        Its eager resource tensor; None for a component that keeps none (a packed variable).
    """
    return vars(component).get("_handle")


def runs_eagerly() -> bool:
    """Whether an op made now runs at once, also when a function is being traced around it."""
    return bool(tf.executing_eagerly())


def is_traced_function() -> bool:
    """Whether a graph is being built and is a function's, not a TensorFlow 1 graph."""
    return not tf.executing_eagerly() and bool(ops.get_default_graph().building_function)


def is_exporting() -> bool:
    """Whether a SavedModel is being written, and functions traced now are for that file."""
    return bool(save_context.in_save_context())


def active_replica(strategy: tf.distribute.Strategy) -> int | None:
    """The replica of `strategy` in whose context the caller runs.

    Args:
        strategy: The strategy that the caller's variable was made under.

    Returns:
        The replica's number inside `strategy.run` or inside a function given to
        `strategy.extended.update`; None in cross-replica context and outside the strategy.
    """
    if not distribute_lib.has_strategy() or distribute_lib.get_strategy() is not strategy:
        return None
    replica: int | None = values_util.get_current_replica_id_as_int()
    return replica


def runs_for_one_replica() -> bool:
    """Whether the caller runs in the context of a replica of any strategy, see `active_replica`."""
    return active_replica(tf.distribute.get_strategy()) is not None
