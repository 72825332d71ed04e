"""A variable that lives for one step: for ops that want a handle where there is only a value."""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value

# The shared name that makes every run of a VarHandleOp create a variable of its own, freed with
# its handle (ResourceHandle::ANONYMOUS_NAME in TensorFlow's resource_handle.h).
_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"


def scratch_variable(at: Emitter, value: Value, shape: Sequence[int]) -> tuple[Value, str]:
    """Makes a variable that holds `value`.

    Args:
        at: Where to emit, and where it lives.
        value: What it holds at first.
        shape: The value's shape.

    Returns:
        Its handle, and the op to wait for before using it.
    """
    handle = at.op(
        "VarHandleOp",
        [],
        "scratch",
        dtype=at.dtype(value),
        shape=shape,
        shared_name=_ANONYMOUS,
        container="",
    )
    filled = at.op("AssignVariableOp", [handle, value], "scratch_assign")
    return handle, filled.op
