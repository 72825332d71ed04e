"""What each replica sees of a slot while eager code updates it one replica after the other.

An unsharded mirrored variable is N copies: replica 1 reads the old value although replica 0 has
already written the new one into its own copy. Shards hold one value only, so the difference has to
be kept for as long as the replicas are out of step: a *round*, from one replica's first write
until every replica has written equally often.

Answers: the shards that a replica's read must join, or the whole value it wrote last; which shards
a replica's write must reach. A round ends early when the shards were written behind its back
(by a traced function): then their value is the value. Traced functions are not concerned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.storage.parts import join
from tf_wu_shard.tensorflow_private.resources import same_bits

Shards = tuple[tf.Tensor, ...]


@dataclasses.dataclass
class _Round:
    """Replicas out of step.

    Attributes:
        before: The shards before the round's first write.
        left: The shards as the last write left them.
        writes: How often each replica has written.
        writer: The replica that wrote last.
        written: The whole value as that replica sees it.
    """

    before: Shards
    left: Shards
    writes: dict[int, int]
    writer: int
    written: tf.Tensor


class ReplicaViews:
    """Keeps the replicas' differing views of one slot apart."""

    def __init__(self, layout: AnyLayout) -> None:
        self._layout = layout
        self._round: _Round | None = None

    def read(self, replica: int | None, shards: Shards) -> tf.Tensor:
        """The value as a replica sees it.

        Args:
            replica: The replica whose component is read; None for the value of all.
            shards: The present shards; outside replicas they may belong to a function being traced.

        Returns:
            A tensor of the logical shape.
        """
        present = None if replica is None else self._present(shards)
        if present is None:
            return join(shards, self._layout)
        if replica == present.writer:
            return present.written
        return join(shards if replica in present.writes else present.before, self._layout)

    def targets(self, replica: int, shards: Shards) -> Sequence[int]:
        """The shards that a replica's next write must reach.

        The first replica's write reaches them all, so that a value which only one replica writes
        is not torn; the others, which by contract write the same value, write their own.

        Args:
            replica: The replica whose component is written.
            shards: The present shards.
        """
        present = self._present(shards)
        if present is None or set(present.writes) == {replica}:
            return range(self._layout.num_shards)
        return (replica,)

    def wrote(self, replica: int, whole: tf.Tensor, before: Shards, after: Shards) -> None:
        """Notes a replica's write.

        Args:
            replica: The replica in whose own context its component was written.
            whole: The value it wrote.
            before: The shards before this write.
            after: The shards after it.
        """
        present = self._present(before)
        if present is None:
            present = _Round(before, after, {}, replica, whole)
        present.writes[replica] = present.writes.get(replica, 0) + 1
        present.writer, present.written, present.left = replica, whole, after
        in_step = (
            len(present.writes) == self._layout.num_shards
            and len(set(present.writes.values())) == 1
        )
        self._round = None if in_step else present

    def close(self) -> None:
        """Ends the round: a write from outside is about to give all replicas one value."""
        self._round = None

    def _present(self, shards: Shards) -> _Round | None:
        """The round, unless someone else has written the shards since its last write."""
        current = self._round
        if current is not None and not all(map(same_bits, current.left, shards)):
            self._round = current = None
        return current
