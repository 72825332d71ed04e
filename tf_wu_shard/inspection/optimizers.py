"""Which optimizer an update is, as far as its ops prove it; names are not looked at.

Every value of an update is followed as a sum of terms: the gradient, its square, the weight, a
slot, each times something that all elements share. Where that is not what an op computes, the
value is unknown, and so is an optimizer that needs it. Formulas: Kingma and Ba (2015) for Adam,
Duchi et al. (2011) for Adagrad, Tieleman and Hinton (2012) for RMSprop, Reddi et al. (2018) for
AMSGrad.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence

from tf_wu_shard.analysis.types import BodyOp, Operand, OperandKind, WeightUpdate
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.variables import READ, WRITES

UNKNOWN = "unknown"

_GRADIENT, _SQUARE, _NUMBER, _WEIGHT, _GREATER = "gradient", "its square", "1", "weight", "max"


class _Form(enum.Enum):
    SUM = "a sum of terms"
    ROOT = "the square root of such a sum, plus a number"
    INVERSE = "one over such a root"
    RATIO = "a sum of terms over such a root"
    OTHER = "anything else"


@dataclasses.dataclass(frozen=True)
class _Value:
    """A value of an update: its form, the terms of it, and those below the line."""

    form: _Form
    terms: frozenset[str] = frozenset()
    below: frozenset[str] = frozenset()

    @property
    def is_number(self) -> bool:
        return self.form is _Form.SUM and self.terms <= {_NUMBER}


_OTHER = _Value(_Form.OTHER)
_ONE = _Value(_Form.SUM, frozenset({_NUMBER}))


@dataclasses.dataclass(frozen=True)
class Recognised:
    """What an update was recognised as.

    Attributes:
        optimizer: Such as "adam-like", or "unknown".
        because: What proves it, or what is missing.
    """

    optimizer: str
    because: str


def recognise(update: WeightUpdate) -> Recognised:
    """Says which optimizer an update is.

    Args:
        update: The update.
    """
    fused = [op for op in update.body if op.type in FUSED]
    if fused:
        if len(fused) == 1:
            name = fused[0].type.removeprefix("ResourceApply")
            return Recognised(name, f"its op is {fused[0].type}")
        return Recognised(UNKNOWN, f"{len(fused)} fused updates of one variable")
    if update.whole or any(op.sum is not None for op in update.body):
        return Recognised(UNKNOWN, "it is not elementwise")
    written = _written(update)
    slots = {slot.key: _slot_kind(slot.key, written[slot.key]) for slot in update.slots}
    if len(update.variables) != len(update.slots) + 1:
        return Recognised(UNKNOWN, "it updates several weights")
    # Averages of the weight are kept beside any optimizer.
    used = {key: kind for key, kind in slots.items() if kind is not _Slot.WEIGHTS}
    return _named(written[update.variables[0].key], used)


def _written(update: WeightUpdate) -> dict[str, list[_Value]]:
    """What is written to each variable, in order."""
    weight = update.variables[0].key
    found: dict[str, list[_Value]] = {variable.key: [] for variable in update.variables}
    values: list[_Value] = []

    def value_of(operand: Operand) -> _Value:
        if operand.kind is OperandKind.GRADIENT:
            return _Value(_Form.SUM, frozenset({_GRADIENT}))
        if operand.kind is OperandKind.SCALAR:
            return _ONE
        return values[operand.index] if operand.kind is OperandKind.BODY else _OTHER

    for op in update.body:
        if op.type == READ:
            term = _WEIGHT if op.variable == weight else op.variable
            values.append(_Value(_Form.SUM, frozenset({term})))
        elif op.type in WRITES:
            new = value_of(op.operands[1])
            if WRITES[op.type] is not None and op.variable != weight:
                new = _added([_Value(_Form.SUM, frozenset({f"+{op.variable}"})), new])
            found[op.variable].append(new)
            values.append(_OTHER)
        else:
            values.append(_computed(op, [value_of(operand) for operand in op.operands]))
    return found


def _computed(op: BodyOp, operands: Sequence[_Value]) -> _Value:
    rule = _RULES.get(op.type)
    return _OTHER if rule is None or not operands else rule(operands)


def _same(operands: Sequence[_Value]) -> _Value:
    return operands[0]


def _added(operands: Sequence[_Value]) -> _Value:
    terms = frozenset().union(*(value.terms for value in operands))
    if all(value.form is _Form.SUM for value in operands):
        return _Value(_Form.SUM, terms)
    others = [value for value in operands if not value.is_number]
    return others[0] if len(others) == 1 and others[0].form is _Form.ROOT else _OTHER


def _multiplied(operands: Sequence[_Value]) -> _Value:
    one, two = operands
    if one.is_number or two.is_number:
        return two if one.is_number else one
    if one.form is _Form.INVERSE:
        one, two = two, one
    if one.form is _Form.SUM and two.form is _Form.INVERSE:
        return _Value(_Form.RATIO, one.terms, two.terms)
    return _squared(operands) if one == two else _OTHER


def _divided(operands: Sequence[_Value]) -> _Value:
    above, below = operands
    if below.is_number:
        return above
    if above.form is _Form.SUM and below.form is _Form.ROOT:
        form = _Form.INVERSE if above.is_number else _Form.RATIO
        return _Value(form, below.terms if above.is_number else above.terms, below.terms)
    return _OTHER


def _squared(operands: Sequence[_Value]) -> _Value:
    # The square of a sum of several terms is no sum of squares.
    if operands[0] == _Value(_Form.SUM, frozenset({_GRADIENT})):
        return _Value(_Form.SUM, frozenset({_SQUARE}))
    return _OTHER


def _root(operands: Sequence[_Value]) -> _Value:
    value = operands[0]
    return _Value(_Form.ROOT, value.terms) if value.form is _Form.SUM else _OTHER


def _inverse_root(operands: Sequence[_Value]) -> _Value:
    value = operands[0]
    return _Value(_Form.INVERSE, value.terms, value.terms) if value.form is _Form.SUM else _OTHER


def _greater(operands: Sequence[_Value]) -> _Value:
    if all(value.form is _Form.SUM for value in operands):
        return _Value(_Form.SUM, _added(operands).terms | {_GREATER})
    return _OTHER


_RULES: Mapping[str, Callable[[Sequence[_Value]], _Value]] = {
    **dict.fromkeys(("Identity", "Neg", "Cast", "Reshape"), _same),
    **dict.fromkeys(("Add", "AddV2", "AddN", "Sub"), _added),
    "Mul": _multiplied,
    "RealDiv": _divided,
    "Square": _squared,
    "Sqrt": _root,
    "Rsqrt": _inverse_root,
    "Maximum": _greater,
}


class _Slot(enum.Enum):
    AVERAGE = "an average of the gradient"
    SQUARES = "an average of its square"
    TOTAL = "the total of its squares"
    GREATEST = "the greatest of another"
    WEIGHTS = "an average of the weight"
    OTHER = "something else"


def _slot_kind(key: str, written: Sequence[_Value]) -> _Slot:
    """What a slot holds, by what is written to it."""
    if len(written) != 1 or written[0].form is not _Form.SUM:
        return _Slot.OTHER
    terms = written[0].terms
    own = terms & {key, f"+{key}"}
    rest = terms - own
    if _GREATER in rest:
        return _Slot.GREATEST if own and not rest & {_GRADIENT, _SQUARE} else _Slot.OTHER
    if _GRADIENT in rest and rest <= {_GRADIENT, _WEIGHT, _NUMBER} and own:
        return _Slot.AVERAGE
    if own and rest == {_WEIGHT}:
        return _Slot.WEIGHTS
    if rest - {_NUMBER} != {_SQUARE}:
        return _Slot.OTHER
    return _Slot.TOTAL if own == {f"+{key}"} else _Slot.SQUARES if key in own else _Slot.OTHER


def _named(writes: Sequence[_Value], slots: Mapping[str, _Slot]) -> Recognised:
    kinds = sorted(kind.name for kind in slots.values())
    above, below = frozenset[str](), frozenset[str]()
    for value in writes:
        if value.form not in (_Form.SUM, _Form.RATIO):
            return Recognised(UNKNOWN, "what it writes to the weight is of no known form")
        above |= value.terms
        below |= value.below
    averages = {key for key, kind in slots.items() if kind is _Slot.AVERAGE}
    plain = above - {_WEIGHT, _NUMBER, _GRADIENT}
    if not plain <= averages:
        return Recognised(UNKNOWN, "what it writes to the weight is of no known form")
    if not below and _reads(plain, averages):
        if not slots and _GRADIENT in above:
            return Recognised("sgd-like", "no slot, the gradient times a number")
        if kinds == ["AVERAGE"]:
            return Recognised("momentum-like", "one slot, an average of the gradient")
    divisors = set(slots) - averages
    if not below or not below - {_NUMBER} <= divisors or not _reads(plain, averages):
        return Recognised(UNKNOWN, "its slots are used in no known way")
    found = _BY_KINDS.get(tuple(kinds))
    return found or Recognised(UNKNOWN, "its slots hold " + ", ".join(sorted(kinds)).lower())


def _reads(read: frozenset[str], slots: set[str]) -> bool:
    """Whether every slot that averages the gradient is what the weight is moved by."""
    return slots <= read


_BY_KINDS = {
    ("TOTAL",): Recognised(
        "adagrad-like", "one slot, the total of squared gradients, under a root"
    ),
    ("SQUARES",): Recognised(
        "rmsprop-like", "one slot, an average of squared gradients, under a root"
    ),
    ("AVERAGE", "SQUARES"): Recognised(
        "adam-like", "two slots, averages of the gradient and of its square, this under a root"
    ),
    ("AVERAGE", "GREATEST", "SQUARES"): Recognised(
        "amsgrad-like", "three slots, Adam's and the greatest average of squares, under a root"
    ),
}
