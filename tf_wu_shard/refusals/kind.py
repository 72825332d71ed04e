"""A refusal as a value: what is wrong, where, and the values that its sentence needs."""

from __future__ import annotations

import dataclasses
import enum
import string
from typing import Any, TypeAlias

# A value in a sentence. A tuple is a shape.
Detail: TypeAlias = str | int | tuple[int, ...]

# What a sentence calls the variable that it is about, where nobody names that.
_IT = "it"


class Kind(enum.Enum):
    """One thing that can be wrong. A group of them is a subclass.

    The sentences name their values in braces, as `str.format` does. `{it}` is the variable that a
    sentence is about; it need not be given.

    Attributes:
        says: What was not understood, or would not pay; readable after "because".
        cure: What lifts it, readable after "lifted by"; "" where nothing is known to.
        of_rules: Whether nothing but the rules for shards stopped: no rule names the op, or the
            rule does not hold there. A replica that holds everything whole could go on.
    """

    says: str
    cure: str
    of_rules: bool

    def __init__(self, says: str, cure: str = "", *, of_rules: bool = False) -> None:
        """See the class."""
        self.says = says
        self.cure = cure
        self.of_rules = of_rules

    @property
    def key(self) -> str:
        """Its name, which reports and programs that read them go by: it does not change."""
        return self.name.lower()

    @property
    def details(self) -> frozenset[str]:
        """Names of the values that its sentences need."""
        parsed = [*string.Formatter().parse(self.says), *string.Formatter().parse(self.cure)]
        return frozenset(field for _, field, _, _ in parsed if field) - {_IT}

    def at(self, where: str = "", /, **detail: Detail) -> Refusal:
        """The refusal at one place.

        Args:
            where: The op or variable at which it was found; "" for none.
            detail: The values that its sentences need, all of them.
        """
        return Refusal(self, where, tuple(detail.items()))


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A reason not to shard, and the place it was found: an answer, not an error.

    Attributes:
        kind: What is wrong.
        where: The op or variable at which the analysis stopped; "" for none.
        detail: The values that its sentences need, by name.
        besides: What also stands in the way.
    """

    kind: Kind
    where: str = ""
    detail: tuple[tuple[str, Detail], ...] = ()
    besides: tuple[Refusal, ...] = ()

    @property
    def reason(self) -> str:
        """What was not understood, or would not pay; readable after "because"."""
        own = self.kind.says.format(**self._shown)
        return "; ".join([own, *(other.reason for other in self.besides)])

    @property
    def cure(self) -> str:
        """What lifts it, readable after "lifted by"; "" where nothing is known to."""
        return self.kind.cure.format(**self._shown)

    @property
    def of_rules(self) -> bool:
        """Whether nothing but the rules for shards stopped, see `Kind`."""
        return self.kind.of_rules and not self.besides

    @property
    def kinds(self) -> frozenset[Kind]:
        """Its kind, and those of what also stands in the way."""
        return frozenset({self.kind}).union(*(other.kinds for other in self.besides))

    def about(self, variable: str) -> Refusal:
        """The same, naming the variable that it is about, such as "its slot m"."""
        return self.but(it=variable)

    def but(self, **detail: Detail) -> Refusal:
        """The same with other values in its sentences."""
        return dataclasses.replace(self, detail=tuple((dict(self.detail) | detail).items()))

    def beside(self, other: Refusal) -> Refusal:
        """Both; what lifts the first is what lifts them."""
        return dataclasses.replace(self, besides=(*self.besides, other))

    def to_data(self) -> dict[str, Any]:
        """The same as JSON has it; `refusal_from` reads it back."""
        return {
            "kind": self.kind.key,
            "where": self.where,
            "detail": dict(self.detail),
            "besides": [other.to_data() for other in self.besides],
        }

    def __str__(self) -> str:
        return f"{self.reason} ({self.where})" if self.where else self.reason

    @property
    def _shown(self) -> dict[str, str | int]:
        return {_IT: _IT} | {
            name: str(list(value)) if isinstance(value, tuple) else value
            for name, value in self.detail
        }
