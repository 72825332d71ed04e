"""Ops on rows of a table: what an update is made of whose gradient names the rows it touches.

Such a gradient is a list of row numbers and one row of values for each. Cut at whole rows, shard
`i` of the table is updated by the entries that name its rows, in their order, and by no others:
each op below computes a row of its result from that row of the table and its entries alone.

- `UnsortedSegmentSum` adds up the entries of each row, in their order.
- `GatherV2` looks the table's rows up for all entries; both are on the same shard. So does
  `ResourceGather`, at its place among the writes, in a variable that is such a table.
- `Unique` lists the rows in the order of their first entries, which is kept among those of a shard.
- `StatelessIf` chooses for all shards alike, where its condition is the same for all.
- a scatter, and a sparse fused update, change the rows that the entries name.

Which operand is which is read off the ops' definitions in TensorFlow's math_ops.cc,
resource_variable_ops.cc and training_ops.cc.
"""

from __future__ import annotations

import dataclasses

# Scatters into a variable (handle, rows, values), each with the op that does it to a value. Of
# entries that name the same row, the later one comes later: exact only in the kernel's own order.
SCATTERS: dict[str, str] = {
    "ResourceScatterAdd": "TensorScatterAdd",
    "ResourceScatterSub": "TensorScatterSub",
    "ResourceScatterUpdate": "TensorScatterUpdate",
}


@dataclasses.dataclass(frozen=True)
class SparseFusedUpdate:
    """The signature of a fused update of some rows.

    Attributes:
        num_handles: How many leading operands are handles: the weight, then its slots.
        gradient: The number of the operand that holds the entries' values.
        rows: The number of the operand that names their rows; all others are scalars.
    """

    num_handles: int
    gradient: int
    rows: int


SPARSE_FUSED: dict[str, SparseFusedUpdate] = {
    "ResourceSparseApplyProximalGradientDescent": SparseFusedUpdate(1, 4, 5),
    "ResourceSparseApplyMomentum": SparseFusedUpdate(2, 3, 4),
    "ResourceSparseApplyKerasMomentum": SparseFusedUpdate(2, 3, 4),
    "ResourceSparseApplyAdagrad": SparseFusedUpdate(2, 3, 4),
    "ResourceSparseApplyAdagradV2": SparseFusedUpdate(2, 4, 5),
    "ResourceSparseApplyProximalAdagrad": SparseFusedUpdate(2, 5, 6),
    "ResourceSparseApplyAdagradDA": SparseFusedUpdate(3, 3, 4),
    "ResourceSparseApplyAdadelta": SparseFusedUpdate(3, 6, 7),
    "ResourceSparseApplyRMSProp": SparseFusedUpdate(3, 7, 8),
    "ResourceSparseApplyCenteredRMSProp": SparseFusedUpdate(4, 8, 9),
    "ResourceSparseApplyFtrl": SparseFusedUpdate(3, 3, 4),
    "ResourceSparseApplyFtrlV2": SparseFusedUpdate(3, 3, 4),
}

# Every op here that writes variables, with how many of its first operands are handles.
SPARSE_WRITES: dict[str, int] = {
    **dict.fromkeys(SCATTERS, 1),
    **{name: fused.num_handles for name, fused in SPARSE_FUSED.items()},
}

SEGMENT_SUM = "UnsortedSegmentSum"
LOOK_UP = "GatherV2"
READ_ROWS = "ResourceGather"
UNIQUE = "Unique"
SHAPE = "Shape"
STRIDED_SLICE = "StridedSlice"

# Ops that keep a value and its shape.
SAME = frozenset({"Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot"})

# A choice between two functions without effects.
BRANCH = "StatelessIf"

# What leads from a sparse gradient to the writes, beside the ops of the other tables.
ROW_OPS = frozenset({SEGMENT_SUM, LOOK_UP, READ_ROWS, UNIQUE, SHAPE, STRIDED_SLICE})

# Elementwise ops that IEEE 754 rounds correctly, or that do not round. Entries are picked out of
# the whole list, so that an element may come into another place of a vector register, or into the
# loop's rest; a kernel that approximates (Pow, Exp, Rsqrt) may round differently there.
EXACT = frozenset(
    {"Abs", "Neg", "Sign", "Square", "Sqrt", "Cast", "ZerosLike", "OnesLike", "Add", "AddV2"}
    | {"Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan", "Maximum", "Minimum", "AddN"}
    | {"Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "IsFinite", "IsInf"}
    | {"IsNan", "LogicalNot", "LogicalAnd", "LogicalOr", "Select", "SelectV2", "ClipByValue"}
    | {"SquaredDifference"}
)
