"""Names of which no two are alike: one that is taken gets a number."""

from __future__ import annotations

from collections.abc import Iterable


class UniqueNames:
    """Gives names away, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Starts with names that are taken.

        Args:
            taken: The names, in any order.
        """
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._taken

    def take(self, name: str) -> str:
        """`name` if nobody has it, else the first of `name_1`, `name_2` ... that nobody has."""
        free, count = name, self._counts.get(name, 0)
        while free in self._taken:
            count += 1
            free = f"{name}_{count}"
        # The next of this name goes on from here, as there may be thousands.
        self._counts[name] = count
        self._taken.add(free)
        return free
