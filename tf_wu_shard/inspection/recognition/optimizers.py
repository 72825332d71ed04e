"""Which optimizer an update is, as far as its ops prove it; names are not looked at.

What an update writes is compared with what known optimizers write (`optimizer_forms`). Factors that
all elements share are not compared: an update that may differ from an optimizer in these alone is
called "-like" it. What has no known form is unknown.
"""

from __future__ import annotations

import dataclasses

from tf_wu_shard.dtypes import INTEGERS
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.recognition.algebra import Sum
from tf_wu_shard.inspection.recognition.optimizer_forms import FORMS, SLOTS, OptimizerForm
from tf_wu_shard.inspection.recognition.trust_ratios import trust_ratios
from tf_wu_shard.inspection.recognition.update_values import UpdateValues
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.weight_update.analysis.types import OperandKind, WeightUpdate

UNKNOWN = "unknown"

# An average of the weight, kept beside any optimizer.
_AVERAGE_OF_WEIGHT = "e"

# More writes than those of any known constraint.
_MOST_CONSTRAINTS = 3

# More than any known optimizer updates.
_MOST_VARIABLES = 8

_KINDS = {
    (text, keeps): kind
    for kind, known in SLOTS.items()
    for text, either in known
    for keeps in ((True, False) if either is None else (either,))
}
_FORMS = {
    ("".join(sorted(form.slots)), form.weight, keeps): form
    for form in FORMS
    for keeps in ((True, False) if form.keeps is None else (form.keeps,))
}


@dataclasses.dataclass(frozen=True)
class Recognised:
    """What an update was recognised as.

    Attributes:
        optimizer: Such as "adam-like", or "unknown".
        because: What proves it, or what is missing.
    """

    optimizer: str
    because: str


def recognise(update: WeightUpdate, view: GraphView) -> Recognised:
    """Says which optimizer an update is.

    Args:
        update: The update.
        view: The graph that it was found in.
    """
    if sum(v.trainable for v in update.variables) > 1:
        return Recognised(UNKNOWN, "it updates several weights")
    parts = _parts(update, view)
    gradients = len(update.reductions) - len(parts)
    if gradients != 1:
        return Recognised(UNKNOWN, f"{gradients} gradients enter it")
    if len(update.variables) > _MOST_VARIABLES:
        return Recognised(UNKNOWN, f"it has {len(update.slots)} slots")
    reading = _Reading(update, view)
    fused = [
        view.ops[op.ops[0]] for op in update.body if op.type in WRITES and WRITES[op.type].is_fused
    ]
    if len(fused) > 1:
        return Recognised(UNKNOWN, f"{len(fused)} fused updates of one variable")
    found = reading.of_fused(fused[0]) if fused else reading.of_ops()
    if found.optimizer == UNKNOWN and not fused:
        found = _constrained(update, view, reading.num_writes) or found
    if not parts or found.optimizer == UNKNOWN:
        return found
    return Recognised(found.optimizer, f"{found.because}; the gradient is sparse")


def _constrained(update: WeightUpdate, view: GraphView, writes: int) -> Recognised | None:
    """Which optimizer an update is whose last writes make the weight of nothing but itself."""
    for steps in range(writes - 1, max(0, writes - 1 - _MOST_CONSTRAINTS), -1):
        found = _Reading(update, view, steps).of_ops()
        if found.optimizer != UNKNOWN:
            return Recognised(found.optimizer, f"{found.because}; then the weight is constrained")
    return None


def _parts(update: WeightUpdate, view: GraphView) -> set[int]:
    """The reductions that are parts of a sparse gradient beside its values."""
    return {
        operand.index
        for part in update.body
        for operand, value in zip(part.operands, view.ops[part.ops[0]].inputs, strict=False)
        if operand.kind is OperandKind.GRADIENT and view.dtype(value) in INTEGERS
    }


class _Reading:
    """One update, being compared with what is known."""

    def __init__(self, update: WeightUpdate, view: GraphView, steps: int | None = None) -> None:
        self._values = UpdateValues(update, view, steps)
        self._steps = steps
        self._weight = update.variables[0].key
        self._old: dict[str, Sum] = self._values.old
        written = self._values.written
        self._slots = {key: found for key, found in written.items() if key != self._weight}
        self._slots |= self._values.beside
        self._kinds: dict[str, str] = {}
        self._trust = trust_ratios(self._values)

    @property
    def num_writes(self) -> int:
        """How often the weight is written."""
        return len(self._values.written[self._weight])

    def of_fused(self, op: Op) -> Recognised:
        """What a fused op and what is done besides it are."""
        name = op.type.removeprefix("ResourceApply").removeprefix("ResourceSparseApply")
        gradient = op.inputs[WRITES[op.type].operand]
        entering = self._text(self._values.of(gradient))
        if entering not in ("g", "g + w"):
            return Recognised(UNKNOWN, f"what enters its {op.type} is not the gradient alone")
        because = f"its op is {op.type}"
        if "use_nesterov" in op.node.attr and op.node.attr["use_nesterov"].b:
            because += ", with use_nesterov"
        before = self._values.written[self._weight]
        if not before:
            return Recognised(name, because)
        if self._text(before[-1]) != "w":
            return Recognised(UNKNOWN, f"{op.type} is not all that changes its weight")
        return Recognised("AdamW" if name == "Adam" else name, f"{because}; the weight decays")

    def of_ops(self) -> Recognised:
        """What an update out of single ops is."""
        writes = self._values.written[self._weight]
        if not writes:
            return Recognised(UNKNOWN, "nothing of a known form is written to its weight")
        new = writes[-1 if self._steps is None else self._steps - 1]
        stepped = {_number(self._values.algebra.only(self._values.stepped))}
        if any(
            self._values.algebra.leaves(w) - stepped for w in writes[self._steps or len(writes) :]
        ):
            return Recognised(UNKNOWN, "its weight is written again, not made of itself alone")
        many = next((key for key, found in self._slots.items() if len(found) != 1), None)
        if many is not None:
            return Recognised(UNKNOWN, f"it writes {many} {len(self._slots[many])} times")
        while self._name_a_slot(new):
            pass
        other = [key for key in self._slots if key not in self._kinds]
        if other:
            return Recognised(UNKNOWN, f"what it writes to {other[0]} is of no known form")
        kinds = "".join(sorted(k for k in self._kinds.values() if k != _AVERAGE_OF_WEIGHT))
        keeps = self._keeps(new, self._old[self._weight])
        form = _FORMS.get((kinds, self._text(new), keeps))
        if form is None:
            return Recognised(UNKNOWN, "what it writes to its weight is of no known form")
        return self._named(form, new, keeps)

    def _named(self, form: OptimizerForm, new: Sum, keeps: bool) -> Recognised:
        ahead = form.name not in ("nesterov-like", "nadam-like") or self._is_ahead(new)
        if not ahead and not (form.name == "nadam-like" and self._is_scheduled(new)):
            return Recognised(
                UNKNOWN,
                "its weight moves by the gradient and an average of it, in other shares"
                " than Nesterov's",
            )
        if form.name == "lion-like" and not self._is_mixed(new):
            return Recognised(UNKNOWN, "the sign is of no mean of the gradient and its average")
        if keeps or form.keeps is not None or form.name == "ftrl-like":
            return Recognised(form.name, form.because)
        name = "adamw-like" if form.name == "adam-like" else form.name
        return Recognised(name, f"{form.because}; the weight decays")

    def _name_a_slot(self, new: Sum) -> bool:
        """Finds what one more slot is; whether there was one."""
        for key, (written,) in self._slots.items():
            if key in self._kinds:
                continue
            kind = self._kind(key, written, new)
            if kind is not None and kind not in self._kinds.values():
                self._kinds[key] = kind
                return True
        return False

    def _kind(self, key: str, written: Sum, new: Sum) -> str | None:
        # First of all: written into the average, plain SGD's new weight looks like a momentum.
        if self._averages(key, written, new):
            return _AVERAGE_OF_WEIGHT
        return _KINDS.get((self._text(written, own=key), self._keeps(written, self._old[key])))

    def _averages(self, key: str, written: Sum, new: Sum) -> bool:
        """Whether a slot moves towards the new weight."""
        algebra = self._values.algebra
        # Constrained, the weight is another one by now.
        new = self._values.written[self._weight][-1] if self._steps else new
        ((old, _),) = self._old[key].items()
        moved = {p: f for p, f in written.items() if old not in algebra.by_factors({p: f})}
        return len(moved) < len(written) and algebra.is_share(moved, new)

    def _keeps(self, value: Sum, old: Sum) -> bool:
        """Whether a value has all of what was before, once."""
        ((product, _),) = old.items()
        return self._values.algebra.by_factors(value).get(product) == {(): 1.0}

    def _text(self, value: Sum, own: str = "") -> str:
        algebra, found = self._values.algebra, dict(self._trust)
        for key, kind in {**self._kinds, self._weight: "w", own: "s"}.items():
            if not key:
                continue
            found[_number(algebra.only(self._old[key]))] = kind
            if key in self._values.new:
                found[_number(algebra.only(self._values.new[key]))] = f"{kind}'"
        found[self._values.gradient] = "g"
        return algebra.text(value, found)

    def _factor(self, value: Sum, of: Sum) -> Sum:
        ((product, _),) = of.items()
        return self._values.algebra.by_factors(value).get(product, {})

    def _is_ahead(self, new: Sum) -> bool:
        """Whether gradient and average enter the weight as they would the next average."""
        (written,), multiplied = self._slots[self._key("m")], self._values.algebra.multiplied
        of_gradient, of_average = self._shares(new)
        gradient = self._values.algebra.once(self._values.gradient)
        one = multiplied(of_gradient, self._factor(written, self._old[self._key("m")]))
        other = multiplied(of_average, self._factor(written, gradient))
        return self._values.algebra.is_near(one, other)

    def _is_scheduled(self, new: Sum) -> bool:
        """Whether the gradient's share changes from step to step otherwise than the average's.

        Dozat's momentum follows a schedule, so that shares cannot be compared with those of the
        average; a quasi-hyperbolic step (Ma and Yarats, 2019) gives the gradient a fixed one.
        """
        shares = self._shares(new)
        if any(len(share) != 1 for share in shares):
            return False
        (of_gradient,), (of_average,) = shares
        return not set(of_gradient) <= set(of_average)

    def _shares(self, new: Sum) -> tuple[Sum, Sum]:
        """What gradient and average are times in what moves the weight, both over any root."""
        algebra, average = self._values.algebra, self._values.new[self._key("m")]
        found = [algebra.once(self._values.gradient), average]
        if "v" in self._kinds.values():
            root = algebra.raised(self._values.new[self._key("v")], -0.5)
            found = [algebra.multiplied(value, root) for value in found]
        return self._factor(new, found[0]), self._factor(new, found[1])

    def _key(self, kind: str) -> str:
        return next(key for key, known in self._kinds.items() if known == kind)

    def _is_mixed(self, new: Sum) -> bool:
        """Whether known shares of what the sign is taken of are both positive."""
        for product in new:
            for number, _ in product:
                name, of = self._values.algebra.made(number)
                if name == "sign":
                    return all(f > 0.0 for p, f in of[0].items() if len(p) == 1)
        return False


def _number(only: int | None) -> int:
    assert only is not None, "variables are things"
    return only
