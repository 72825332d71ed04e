"""A variable that lives for one step: for ops that want a handle where there is only a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value

# The shared name that makes every run of a VarHandleOp create a variable of its own, freed with
# its handle (ResourceHandle::ANONYMOUS_NAME in TensorFlow's resource_handle.h).
_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"


def scratch_variable(
    builder: GraphBuilder,
    value: Value,
    shape: Sequence[int],
    dtype: int,
    device: str,
    scope: str,
    controls: Iterable[str] = (),
) -> tuple[Value, str]:
    """Makes a variable that holds `value`.

    Args:
        builder: Where to emit.
        value: What it holds at first.
        shape: The value's shape.
        dtype: Its element type.
        device: Where it lives.
        scope: Name scope of the emitted ops.
        controls: Names of ops that must run before it is filled.

    Returns:
        Its handle, and the op to wait for before using it.
    """
    handle = builder.op(
        "VarHandleOp",
        [],
        name=f"{scope}/scratch",
        device=device,
        types={"dtype": dtype},
        strings={"shared_name": _ANONYMOUS, "container": ""},
    )
    described = builder.nodes[-1].attr["shape"].shape
    described.SetInParent()
    for size in shape:
        described.dim.add().size = size
    filled = builder.op(
        "AssignVariableOp",
        [handle, value],
        name=f"{scope}/scratch_assign",
        device=device,
        controls=controls,
        types={"dtype": dtype},
    )
    return handle, filled.op
