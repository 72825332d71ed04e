"""Ops that write variables through their handles: the one table of them.

A plain write assigns a variable, or adds to it. A fused update (`ResourceApply*`) is a whole
optimizer step in one kernel, which computes, lane by lane, new weight and slots from old ones and
the gradient: on shards the same kernel runs on the shards' handles. A scatter and a sparse fused
update do so to the rows of a table that the entries of a gradient name.

Which operand is which is read off the ops' definitions in TensorFlow's resource_variable_ops.cc and
training_ops.cc. Kernels that combine elements of different lanes are not here, and so are refused.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Write:
    """What an op writes.

    Attributes:
        num_handles: How many leading operands are handles of variables that it writes: of a fused
            update the weight, then its slots.
        operand: The number of the operand that has an element for each of a variable's, or of what
            writes some rows, a row for each; what has no number here is a scalar.
        rows: The number of the operand that names the rows; None of what writes whole variables.
        is_fused: Whether it is a whole optimizer step.
        on_values: The op that does to a value what this does to the variable, from the old value
            and its operands; None of an assignment and of a fused update. Of entries that name the
            same row, a scatter takes the later one later, in the kernel's own order alone.
    """

    num_handles: int
    operand: int
    rows: int | None = None
    is_fused: bool = False
    on_values: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it assigns a whole variable, or adds to it."""
        return not self.is_fused and self.rows is None


def _fused(num_handles: int, gradient: int, rows: int | None = None) -> Write:
    return Write(num_handles, gradient, rows, is_fused=True)


ASSIGN = "AssignVariableOp"

WRITES: dict[str, Write] = {
    ASSIGN: Write(1, 1),
    "AssignAddVariableOp": Write(1, 1, on_values="AddV2"),
    "AssignSubVariableOp": Write(1, 1, on_values="Sub"),
    "ResourceApplyGradientDescent": _fused(1, 2),
    "ResourceApplyProximalGradientDescent": _fused(1, 4),
    "ResourceApplyMomentum": _fused(2, 3),
    "ResourceApplyKerasMomentum": _fused(2, 3),
    "ResourceApplyAdagrad": _fused(2, 3),
    "ResourceApplyAdagradV2": _fused(2, 4),
    "ResourceApplyProximalAdagrad": _fused(2, 5),
    "ResourceApplyAdagradDA": _fused(3, 3),
    "ResourceApplyAdadelta": _fused(3, 6),
    "ResourceApplyAdam": _fused(3, 9),
    "ResourceApplyAdamWithAmsgrad": _fused(4, 10),
    "ResourceApplyAdaMax": _fused(3, 8),
    "ResourceApplyRMSProp": _fused(3, 7),
    "ResourceApplyCenteredRMSProp": _fused(4, 8),
    "ResourceApplyFtrl": _fused(3, 3),
    "ResourceApplyFtrlV2": _fused(3, 3),
    "ResourceApplyAddSign": _fused(2, 6),
    "ResourceApplyPowerSign": _fused(2, 6),
    "ResourceScatterAdd": Write(1, 2, rows=1, on_values="TensorScatterAdd"),
    "ResourceScatterSub": Write(1, 2, rows=1, on_values="TensorScatterSub"),
    "ResourceScatterUpdate": Write(1, 2, rows=1, on_values="TensorScatterUpdate"),
    "ResourceSparseApplyProximalGradientDescent": _fused(1, 4, rows=5),
    "ResourceSparseApplyMomentum": _fused(2, 3, rows=4),
    "ResourceSparseApplyKerasMomentum": _fused(2, 3, rows=4),
    "ResourceSparseApplyAdagrad": _fused(2, 3, rows=4),
    "ResourceSparseApplyAdagradV2": _fused(2, 4, rows=5),
    "ResourceSparseApplyProximalAdagrad": _fused(2, 5, rows=6),
    "ResourceSparseApplyAdagradDA": _fused(3, 3, rows=4),
    "ResourceSparseApplyAdadelta": _fused(3, 6, rows=7),
    "ResourceSparseApplyRMSProp": _fused(3, 7, rows=8),
    "ResourceSparseApplyCenteredRMSProp": _fused(4, 8, rows=9),
    "ResourceSparseApplyFtrl": _fused(3, 3, rows=4),
    "ResourceSparseApplyFtrlV2": _fused(3, 3, rows=4),
}

# Ops that write parts of a variable, or all of it from parts. No rule follows them: of a variable
# that they write nothing is claimed but with what.
WRITES_OF_PARTS = frozenset(
    {
        *(f"ResourceScatter{what}" for what in ("Mul", "Div", "Min", "Max")),
        *(f"ResourceScatterNd{what}" for what in ("Update", "Add", "Sub", "Min", "Max")),
        *("ResourceStridedSliceAssign", "ResourceCountUpTo", "AssignVariableXlaConcatND"),
    }
)

# Whatever has an effect on the variables whose handles it takes first.
WRITING = WRITES_OF_PARTS | WRITES.keys()


def num_written(op_type: str) -> int:
    """How many of an op's first operands are handles of variables that it writes."""
    return WRITES[op_type].num_handles if op_type in WRITES else 0


def is_plain_write(op_type: str) -> bool:
    """Whether an op assigns a whole variable, or adds to it."""
    return op_type in WRITES and WRITES[op_type].is_plain


def is_fused_update(op_type: str) -> bool:
    """Whether an op is a whole optimizer step on whole variables."""
    return op_type in WRITES and WRITES[op_type].is_fused and WRITES[op_type].rows is None


def is_optimizer_step(op_type: str) -> bool:
    """Whether an op is a whole optimizer step, on whole variables or on some rows of them."""
    return op_type in WRITES and WRITES[op_type].is_fused


def writes_rows(op_type: str) -> bool:
    """Whether an op writes the rows of variables that one of its operands names."""
    return op_type in WRITES and WRITES[op_type].rows is not None
