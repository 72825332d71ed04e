"""Ops that TensorFlow's graph optimizer, Grappler, may replace by others before they run.

What it makes of them may round otherwise than they do: it divides by a square root by multiplying
with a reciprocal one, and multiplies the scalars of a product first. It does so in the unsharded
step, too, so such ops stay in its sight: a function that XLA compiles is not. The rules are those
of constant_folding.cc and arithmetic_optimizer.cc (SqrtDivToRsqrtMul); each names what it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tf_wu_shard.graph.builder import KEEP_ORDER
from tf_wu_shard.graph.constants import floating_scalar
from tf_wu_shard.graph.op import Op

_ADDITIONS = frozenset(("Add", "AddV2", "AddN"))
_SUMS = _ADDITIONS | {"Sub"}
_QUOTIENTS = frozenset(("Div", "RealDiv"))
_PRODUCTS = _QUOTIENTS | {"Mul"}


def left_to_grappler(names: Iterable[str], ops: Mapping[str, Op]) -> set[str]:
    """Those of some ops that Grappler may replace.

    All of them where a root is divided by: what becomes of the quotient depends on the shapes of
    what is around it, and those of what a compiled function returns are not known.

    Args:
        names: The ops' names.
        ops: All ops of the graph.
    """
    own = [ops[name] for name in names]
    if divides_by_root(own, ops):
        return {op.name for op in own}
    graph = _Graph(ops)
    return set().union(*map(graph.replaced, own))


def divides_by_root(own: Iterable[Op], ops: Mapping[str, Op]) -> bool:
    """Whether one of some ops divides by a square root.

    Args:
        own: The ops.
        ops: All ops of the graph.
    """
    return any(op.type in _QUOTIENTS and ops[op.inputs[1].op].type == "Sqrt" for op in own)


class _Graph:
    """A graph as Grappler sees it."""

    def __init__(self, ops: Mapping[str, Op]) -> None:
        self._ops = ops
        self._constant: dict[str, bool] = {}

    def replaced(self, op: Op) -> set[str]:
        """What may be replaced together with an op, itself included; nothing where it may not."""
        operands = [self._ops[value.op] for value in op.inputs]
        found: set[str] = set()
        if op.type in _SUMS | _PRODUCTS and any(map(self._may_be_neutral, operands)):
            found.add(op.name)
        # ReduceDivToReciprocalMul.
        if op.type in _QUOTIENTS and self._is_constant(operands[1]):
            found.add(op.name)
        for operand in operands:
            if _reordered(op, operand) or self._constants_meet(op, operand):
                found |= {op.name, operand.name}
        if op.type in _ADDITIONS and _common_factor(operands):
            found |= {op.name, *(operand.name for operand in operands)}
        return found

    def _is_constant(self, op: Op) -> bool:
        """Whether an op's results are known before the step runs, as all that it is made of is."""
        known = self._constant.get(op.name)
        if known is None:
            self._constant[op.name] = False  # of a loop, nothing is
            sources = [self._ops[value.op] for value in op.inputs]
            known = op.type == "Const" or (bool(sources) and all(map(self._is_constant, sources)))
            self._constant[op.name] = known
        return known

    def _may_be_neutral(self, op: Op) -> bool:
        """Whether an operand is a constant that may be zero or one: nothing is computed then."""
        if not self._is_constant(op):
            return False
        if op.type != "Const":
            return True
        return floating_scalar(op.node.attr["value"].tensor) in (None, 0.0, 1.0)

    def _constants_meet(self, op: Op, operand: Op) -> bool:
        """ConstantPushDown: each of two sums, or of two products, has a constant."""
        if not any({op.type, operand.type} <= family for family in (_SUMS, _PRODUCTS)):
            return False
        return all(
            any(self._is_constant(self._ops[value.op]) for value in one.inputs)
            for one in (op, operand)
        )


def _reordered(op: Op, operand: Op) -> bool:
    """MinimizeBroadcasts and AddOpsRewrite: additions, or products, one after the other."""
    if op.type == operand.type == "Mul":
        return True
    if op.type in _ADDITIONS and operand.type in _ADDITIONS:
        return KEEP_ORDER not in op.node.attr and KEEP_ORDER not in operand.node.attr
    return False


def _common_factor(operands: Iterable[Op]) -> bool:
    """HoistCommonFactorOutOfAggregation: a sum of products, or quotients, that share an operand."""
    own = [frozenset(operand.inputs) for operand in operands]
    types = {operand.type for operand in operands}
    return len(types) == 1 and types <= _PRODUCTS and bool(frozenset.intersection(*own))
