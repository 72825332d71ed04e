"""Ops whose result at each place depends on their operands at that place alone.

For an elementwise f, f(x)[lanes of shard i] = f(x[lanes of shard i]): the local op is the same op.
Padding lanes compute garbage (a 0/0, say) and are never looked at.

What is to be proved of each: run on the shards of its operands, whatever their padding holds, it
gives the shards of its result, bit for bit; scalars among the operands stay scalars, and of smaller
tensors that every replica holds, what is broadcast over its shard is cut out.

BiasAdd is one of them where the bias has as many elements as the value (Keras adds tensors of shape
[1, n] by it). Its kernel wants a matrix, which a shard is not, so there it is a plain addition.

On a table cut at rows, each row of the result needs that row of each operand; on entries, each
entry itself. What is outside is broadcast over them as NumPy does, or each shard takes its rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import INT64
from tf_wu_shard.placement import Placement, Replicated, RowPlacement, Sharded, What
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.operation import LocalOp, Operation
from tf_wu_shard.rules.registry import Family, Operands, Outcome, Rule

_ARITHMETIC = (
    *("Abs", "Neg", "Sign", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Floor", "Ceil"),
    *("Round", "Rint", "ZerosLike", "OnesLike"),
)

_TRANSCENDENTAL = (
    *("Exp", "Expm1", "Log", "Log1p", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh"),
    *("Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Sigmoid", "Erf", "Erfc", "Erfinv", "Ndtri"),
    *("Lgamma", "Digamma"),
)

_ACTIVATIONS = ("Softplus", "Softsign", "Relu", "Relu6", "Elu", "Selu", "LeakyRelu")

_TESTS = ("IsFinite", "IsInf", "IsNan", "LogicalNot", "Invert")

_BINARY = (
    *("Add", "AddV2", "Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan", "FloorDiv"),
    *("FloorMod", "Mod", "TruncateDiv", "TruncateMod", "Maximum", "Minimum", "Pow"),
    *("SquaredDifference", "Xdivy", "Xlogy", "Xlog1py", "Atan2", "NextAfter"),
)

_COMPARISONS = (
    *("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"),
    *("LogicalAnd", "LogicalOr", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    *("LeftShift", "RightShift"),
)

# These want their operands in one shape, but for scalars; SelectV2 broadcasts, Select does not.
_OF_ONE_SHAPE = ("AddN", "Select", "ClipByValue")

# Ops that IEEE 754 rounds correctly, or that do not round. Entries are picked out of the whole
# list, so that an element may come into another place of a vector register, or into the loop's
# rest; a kernel that approximates (Pow, Exp, Rsqrt) may round differently there.
EXACT = frozenset(
    {"Abs", "Neg", "Sign", "Square", "Sqrt", "Cast", "ZerosLike", "OnesLike", "Add", "AddV2"}
    | {"Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan", "Maximum", "Minimum", "AddN"}
    | {"Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "IsFinite", "IsInf"}
    | {"IsNan", "LogicalNot", "LogicalAnd", "LogicalOr", "Select", "SelectV2", "ClipByValue"}
    | {"SquaredDifference"}
)


def same_lanes(op: Operation, operands: tuple[Placement, ...]) -> Outcome:
    """The rule of ops that do not broadcast: operands are scalars or of one size."""
    if op.shape is None:
        return refusals.Rules.RESULT_SHAPE_UNKNOWN.at(op.name)
    size = math.prod(op.shape)
    for operand in operands:
        operand_size = math.prod(operand.shape)
        if operand_size != size and (isinstance(operand, Sharded) or operand_size != 1):
            return refusals.Rules.BROADCASTS.at(op.name, shape=operand.shape, result=op.shape)
    return (Sharded(op.shape),)


def broadcast_lanes(op: Operation, operands: tuple[Placement, ...]) -> Outcome:
    """The rule of ops that broadcast as NumPy does.

    Broadcasting keeps the row-major order of an operand exactly when the operand has as many
    elements as the result (shapes then differ by leading ones only). A smaller operand (a scalar, a
    norm of each row) is broadcast by what holds it whole, which a shard does not.
    """
    if op.shape is None:
        return refusals.Rules.RESULT_SHAPE_UNKNOWN.at(op.name)
    size = math.prod(op.shape)
    for operand in operands:
        if isinstance(operand, Sharded) and math.prod(operand.shape) != size:
            return refusals.Rules.BROADCASTS.at(op.name, shape=operand.shape, result=op.shape)
    return (Sharded(op.shape),)


def each_row(op: Operation, operands: Operands) -> Outcome:
    """The rule on tables and entries; of what is outside alone, each shard makes its rows."""
    inside = {(p.what, p.entries) for p in operands if isinstance(p, RowPlacement)}
    if len(inside) > 1:
        return refusals.Rows.TABLE_WITH_ENTRIES.at(op.name)
    what, entries = inside.pop() if inside else (What.TABLE, "")
    if what not in (What.TABLE, What.ENTRIES):
        return refusals.Rows.COMPUTES_WITH_ROW_NUMBERS.at(op.name, what=what.value)
    if what is What.ENTRIES and op.type not in EXACT:
        return refusals.Rows.ROUNDED_OTHERWISE.at(op.name, op_type=op.type)
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands):
        return refusals.Updates.OPERAND_SHAPE_UNKNOWN.at(op.inputs[operands.index(None)].op)
    return _of_tables(op, known) if what is What.TABLE else _of_entries(op, known, entries)


def _of_tables(op: Operation, operands: Sequence[Placement]) -> Outcome:
    tables = [operand.shape for operand in operands if isinstance(operand, RowPlacement)]
    table, result = (*tables, op.shape or ())[0], _broadcast([o.shape for o in operands])
    if result is None or result[:1] != table[:1] or any(len(s) != len(result) for s in tables):
        return refusals.Rows.BROADCASTS_OVER_TABLE.at(op.name, table=table)
    return (RowPlacement(What.TABLE, shape=result),)


def _of_entries(op: Operation, operands: Sequence[Placement], entries: str) -> Outcome:
    shapes = {operand.shape for operand in operands if isinstance(operand, RowPlacement)}
    if len(shapes) != 1:
        return refusals.Rows.ENTRIES_OVER_ENTRIES.at(op.name)
    of_one = shapes.pop()
    for shape in (operand.shape for operand in operands if isinstance(operand, Replicated)):
        # Every entry sees the same, and there are no more of them.
        alike = len(shape) <= len(of_one) or (len(shape) == len(of_one) + 1 and shape[0] == 1)
        if not alike or _broadcast([shape[-len(of_one) :] if of_one else (), of_one]) != of_one:
            return refusals.Rows.BROADCASTS_OVER_ENTRIES.at(op.name, shape=shape)
    return (RowPlacement(What.ENTRIES, entries, shape=of_one),)


def own_rows(operands: Operands, results: Sequence[Placement]) -> tuple[int, ...]:
    """Numbers of the operands from outside of which each shard takes its own rows.

    Args:
        operands: Where the operands of an op lie that `each_row` is the rule of.
        results: Where its results lie.
    """
    (result,) = results
    if not isinstance(result, RowPlacement) or result.what is not What.TABLE:
        return ()
    return tuple(
        number
        for number, operand in enumerate(operands)
        if isinstance(operand, Replicated)
        and len(operand.shape) == len(result.shape)
        and operand.shape[0] == result.shape[0] > 1
    )


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that shapes broadcast to as NumPy's do, or None."""
    rank = max(map(len, shapes))
    found = []
    for sizes in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        more = {size for size in sizes if size != 1}
        if len(more) > 1:
            return None
        found.append(more.pop() if more else 1)
    return tuple(found)


def _cast(op: Operation, operands: Operands) -> Outcome:
    (first,) = operands
    if not isinstance(first, RowPlacement) or first.what is not What.ROWS:
        return each_row(op, operands)
    # A wider type has the same numbers; a narrower one might not have all of them.
    if op.attribute("DstT").type == INT64:
        return (first,)
    return refusals.Rows.ROW_NUMBERS_NARROWED.at(op.name)


def _as_addition(op: Operation, operands: Operands) -> LocalOp:
    return LocalOp(tuple(range(len(operands))), "AddV2", in_order=True)


registry.register(
    Rule(Family.ELEMENTWISE, same_lanes, each_row),
    *(*_ARITHMETIC, *_TRANSCENDENTAL, *_ACTIVATIONS, *_TESTS, *_OF_ONE_SHAPE),
)
registry.register(
    Rule(Family.ELEMENTWISE, broadcast_lanes, each_row),
    *(*_BINARY, *_COMPARISONS, "SelectV2"),
)
registry.register(Rule(Family.ELEMENTWISE, same_lanes, _cast), "Cast")
registry.register(Rule(Family.ELEMENTWISE, same_lanes, localize=_as_addition), "BiasAdd")
