"""Ops that TensorFlow's graph optimizer, Grappler, may replace by others before they run.

What it makes of them may round otherwise than they do: it divides by a square root by multiplying
with a reciprocal one, and multiplies the scalars of a product first. It does so in the unsharded
step, too, so such ops stay in its sight: a function that XLA compiles is not. The rules are those
of constant_folding.cc and arithmetic_optimizer.cc (SqrtDivToRsqrtMul); each names what it is about.
"""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set

from tf_wu_shard.graph.builder import KEEP_ORDER
from tf_wu_shard.graph.constants import floating_scalar
from tf_wu_shard.graph.op import Op
from tf_wu_shard.reachable import reachable
from tf_wu_shard.weight_update.rewrite.compiled_body import attributes_of

_ADDITIONS = frozenset(("Add", "AddV2", "AddN"))
_SUMS = _ADDITIONS | {"Sub"}
_QUOTIENTS = frozenset(("Div", "RealDiv"))
_PRODUCTS = _QUOTIENTS | {"Mul"}
_COMMUTATIVE = _ADDITIONS | {"Mul", "Maximum", "Minimum"}


def left_to_grappler(regions: Sequence[Collection[str]], ops: Mapping[str, Op]) -> set[str]:
    """The ops of some regions that Grappler may replace, and all of them that these are made of.

    What becomes of an op depends on the shapes of what it takes, and those of what a compiled
    function returns are not known. Where a root is divided by, all of a region stays: what becomes
    of the quotient depends on what is around it, too.

    Args:
        regions: Of each, the names of its ops.
        ops: All ops of the graph.

    Returns:
        Their names; perhaps names of others besides, which they are replaced with.
    """
    graph, found = _Graph(ops), set[str]()
    for names in regions:
        own = [ops[name] for name in names]
        if divides_by_root(own, ops):
            found.update(names)
        else:
            found.update(*map(graph.replaced, own))
    inside = frozenset[str]().union(*regions)

    def made_of(name: str) -> Iterable[str]:
        return inside.intersection(value.op for value in ops[name].inputs)

    stays = set(reachable(found, made_of))
    return stays | _twins(stays, inside, ops)


def _twins(stays: Set[str], inside: Set[str], ops: Mapping[str, Op]) -> set[str]:
    """The ops of `inside` that compute the same as one that stays.

    Grappler makes one op of them (DedupComputations), and it matters to it how many ops take what
    one computes: a factor that another op takes, too, is no link in a row of products.
    """
    contents: dict[Hashable, int] = {}
    numbers: dict[str, int] = {}

    def numbered(name: str) -> int:
        op = ops[name]
        known: Hashable = name
        if name in inside or op.type == "Const":
            inputs = [(numbers.get(v.op) or numbered(v.op), v.index) for v in op.inputs]
            if op.type in _COMMUTATIVE:
                inputs.sort()
            known = op.type, attributes_of(op.node), op.device, tuple(inputs)
        return contents.setdefault(known, len(contents) + 1)

    needs = {name: inside & {v.op for v in ops[name].inputs} for name in inside}
    for name in graphlib.TopologicalSorter(needs).static_order():
        numbers[name] = numbered(name)
    own = {numbers[name] for name in stays & inside}
    return {name for name in inside if numbers[name] in own}


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
        operands = self._operands(op)
        found: set[str] = set()
        if op.type in _SUMS | _PRODUCTS and any(map(self._may_be_neutral, operands)):
            found.add(op.name)
        if op.type in _QUOTIENTS and self._is_product(op):
            found.add(op.name)
        # RemoveNegation.
        if op.type in _SUMS and any(operand.type == "Neg" for operand in operands):
            found.add(op.name)
        for operand in operands:
            if self._reordered(op, operand) or self._constants_meet(op, operand):
                found |= {op.name, operand.name}
        if op.type in _ADDITIONS and self._common_factor(operands):
            found |= {op.name, *(operand.name for operand in operands)}
        return found

    def _operands(self, op: Op) -> list[Op]:
        return [self._ops[value.op] for value in op.inputs]

    def _is_product(self, op: Op) -> bool:
        """Whether an op multiplies, as a quotient does by a constant; ReduceDivToReciprocalMul."""
        is_quotient = op.type in _QUOTIENTS
        return op.type == "Mul" or (is_quotient and self._is_constant(self._operands(op)[1]))

    def _is_addition(self, op: Op) -> bool:
        """Whether an op adds, as a difference does that takes a number with another sign."""
        takes_negative = op.type == "Sub" and self._operands(op)[1].type == "Neg"
        return op.type in _ADDITIONS or takes_negative

    def _is_constant(self, op: Op) -> bool:
        """Whether an op's results are known before the step runs, as all that it is made of is."""
        known, path = self._constant, {op.name: None}
        # No recursion: what a gradient is made of goes through all layers of a model.
        while path:
            name = next(reversed(path))
            one = self._ops[name]
            sources = [value.op for value in one.inputs]
            waiting = next((source for source in sources if source not in known), None)
            if name in known or not sources or any(known.get(s) is False for s in sources):
                known.setdefault(name, one.type == "Const" and not sources)
            elif waiting is None or waiting in path:
                known[name] = waiting is None  # of a loop, nothing is
            else:
                path[waiting] = None
                continue
            del path[name]
        return known[op.name]

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

    def _reordered(self, op: Op, operand: Op) -> bool:
        """MinimizeBroadcasts and AddOpsRewrite: additions, or products, one after the other."""
        if self._is_product(op) and self._is_product(operand):
            return True
        if self._is_addition(op) and self._is_addition(operand):
            return KEEP_ORDER not in op.node.attr and KEEP_ORDER not in operand.node.attr
        return False

    def _common_factor(self, operands: Iterable[Op]) -> bool:
        """HoistCommonFactorOutOfAggregation: products, or quotients, that share an operand."""
        own = [frozenset(operand.inputs) for operand in operands]
        types = {"Mul" if self._is_product(operand) else operand.type for operand in operands}
        return len(types) == 1 and types <= _PRODUCTS and bool(frozenset.intersection(*own))
