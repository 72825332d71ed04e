"""The order in which a body's copy accesses the shards of slots: that of the original accesses."""

from __future__ import annotations


class AccessOrder:
    """What was emitted so far, by slot."""

    def __init__(self) -> None:
        """Nothing was."""
        self._last_write: dict[str, str] = {}
        self._reads: dict[str, list[str]] = {}

    def before(self, key: str, *, writes: bool) -> list[str]:
        """The names of those accesses of a slot's shard that the next one must wait for.

        Args:
            key: The slot.
            writes: Whether the next one writes it.
        """
        last = [self._last_write[key]] if key in self._last_write else []
        return last + (self._reads.get(key, []) if writes else [])

    def after(self, key: str, name: str, *, writes: bool) -> None:
        """Notes an access.

        Args:
            key: The slot.
            name: The op's name.
            writes: Whether it writes it.
        """
        if writes:
            self._last_write[key] = name
            self._reads[key] = []
        else:
            self._reads.setdefault(key, []).append(name)
