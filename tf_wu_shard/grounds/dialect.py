"""What every dialect of replicas talking to each other offers: one read half, five verbs to write.

A dialect knows how gradient reductions look in its graphs and how to emit communication there. It
knows layouts, not optimizers: nothing behind this line knows what the values are for.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Combine
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import Replicas

if TYPE_CHECKING:
    from tf_wu_shard.graph.builder import Emitter


@dataclasses.dataclass(frozen=True)
class CarriedReduction:
    """A sum over replicas as the graph carries it, of one gradient or of several packed together.

    Attributes:
        operands: Per replica, what the replica contributes.
        results: Per replica, the value that holds the sum there.
        divisor: What the sum is divided by.
        carriers: Names of the ops that do it.
    """

    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    divisor: int
    carriers: tuple[str, ...]


class Gathered(enum.Enum):
    """A part of a sparse gradient: one entry for each row that a replica touched."""

    VALUES = "a row of values for each entry"
    ROWS = "the number of each entry's row"
    SHAPE = "the shape of the table, which every replica knows"


@dataclasses.dataclass(frozen=True)
class CarriedSlices(CarriedReduction):
    """One part of a sparse gradient, all replicas' entries one after the other.

    Attributes:
        gathered: Which part.
        order: The replicas in the order in which their entries stand.
    """

    gathered: Gathered
    order: tuple[int, ...]


class Uneven(Protocol):
    """Exchanges between replicas that do not all do the same, each by a copy of its own."""

    def reduce_to(self, at: Emitter, operands: Sequence[Value], owner: int) -> Value:
        """Sums a tensor over the replicas, on one of them.

        Args:
            at: Where to emit.
            operands: Per replica what it contributes, in any shape.
            owner: The replica that is to have the sum.

        Returns:
            The sum, a vector.
        """

    def broadcast_from(self, at: Emitter, value: Value) -> list[Value]:
        """Gives every replica what one of them has.

        Args:
            at: Where to emit; its device is the replica's that has the value.
            value: The value.

        Returns:
            Per replica, the value.
        """


class Entries(Protocol):
    """An exchange of lists, of which each replica has one of a length of its own."""

    def gather_entries(
        self, at: Emitter, parts: Mapping[str, Sequence[Value]]
    ) -> dict[str, list[Value]]:
        """Puts the replicas' lists one after the other, along the first dimension, on each of them.

        Args:
            at: Where to emit.
            parts: By name, what is known of each entry: the tensor of each copy that the graph
                holds, in the order in which they are to stand. All parts of a copy have as many
                entries, which may be known only when the step runs.

        Returns:
            By name, per copy, the result.
        """


class Stacks(Protocol):
    """What it takes to compute whole tensors of equal layouts, a stack, each on one replica."""

    def carries(self, dtype: int) -> bool:
        """Whether tensors of an element type, a DataType number, can be put together and cut."""

    def own_whole(
        self,
        at: Emitter,
        shards: Sequence[Value],
        layout: Any,
    ) -> list[Value]:
        """Gives every replica as many whole tensors of a stack, out of the shards of all.

        Args:
            at: Where to emit.
            shards: The replica's shard of each tensor; as many for every replica.
            layout: How each of them is cut.

        Returns:
            The replica's own tensors, of `layout.shape`. All of a stack are the first replica's
            own, then the second's, and so on, in the order of the shards that the replicas hold.
        """

    def shards_of_all(
        self,
        at: Emitter,
        own: Sequence[Value],
        layout: Any,
    ) -> list[Value]:
        """The way back: the replica's shard of each tensor, out of the own ones of each replica.

        Args:
            at: Where to emit.
            own: The replica's own tensors, each of `layout.size` elements in any shape.
            layout: How they are to be cut.
        """

    def embed_own(self, at: Emitter, shard: Value, layout: Any, fill: Value) -> Value:
        """A whole tensor in which all but the replica's own shard is `fill`.

        Args:
            at: Where to emit.
            shard: The replica's shard.
            layout: How the tensor is cut.
            fill: A scalar.

        Returns:
            The tensor, of `layout.shape`.
        """

    def select_own(
        self,
        at: Emitter,
        values: Sequence[Value],
        shape: tuple[int, ...],
    ) -> list[Value]:
        """Those of values, one for each tensor of a stack, that belong to the replica's own ones.

        Args:
            at: Where to emit.
            values: The values, the same on every replica.
            shape: The shape of each.
        """


class Dialect(Protocol):
    """How replicas communicate in one kind of graph. It takes layouts of the kind that it makes.

    Attributes:
        preferences: How they like updates to be shared.
        replicas: Who they are.
    """

    preferences: Preferences
    replicas: Replicas

    @property
    def uneven(self) -> Uneven | None:
        """None where no replica can do an update alone, as all of them run one program."""

    @property
    def entries(self) -> Entries | None:
        """None where replicas exchange nothing whose size is known only when the step runs."""

    @property
    def stacks(self) -> Stacks | None:
        """None where replicas do not take turns with whole tensors, as each may own an update."""

    def recognise(self, view: GraphView) -> tuple[list[CarriedReduction], list[Refusal]]:
        """Finds the sums over replicas.

        Args:
            view: The graph.

        Returns:
            The reductions in a fixed order, and why others were not taken.
        """

    def shard_of(self, copy: int) -> int:
        """The shard of every tensor that a copy of the program works on.

        Args:
            copy: The copy's place among those that the graph holds.
        """

    def adopt(self, nodes: Iterable[Any]) -> None:
        """Makes emitted nodes part of the program that the replicas run.

        Args:
            nodes: NodeDefs that verbs and rewriter emitted.
        """

    def shard_handle(self, at: Emitter) -> tuple[Value, Value]:
        """An input of the graph for the handle of a variable that lives in shards.

        Args:
            at: Where to emit; its scope is the input's name.

        Returns:
            The input, and the handle as the program uses it.
        """

    def reduce_scatter(
        self,
        at: Emitter,
        operands: Sequence[Sequence[Value]],
        layouts: Sequence[Any],
    ) -> list[list[Value]]:
        """Sums a bucket of tensors over the replicas; each replica gets its shard of each sum.

        Args:
            at: Where to emit.
            operands: `operands[t][r]` is replica r's contribution to tensor t, in any shape.
            layouts: `layouts[t]` says how tensor t is cut.

        Returns:
            `shards[t][r]`: on replica r, its shard of the sum of tensor t, a vector.
        """

    def all_gather(
        self,
        at: Emitter,
        shards: Sequence[Sequence[Value]],
        layouts: Sequence[Any],
    ) -> list[list[Value]]:
        """Puts a bucket of tensors together again, on every replica.

        Args:
            at: Where to emit.
            shards: `shards[t][r]`, a vector on replica r.
            layouts: `layouts[t]` says how tensor t was cut.

        Returns:
            `whole[t][r]`: on replica r, tensor t in its logical shape.
        """

    def all_reduce(
        self,
        at: Emitter,
        operands: Sequence[Sequence[Value]],
        shapes: Sequence[tuple[int, ...]],
        combine: Combine = Combine.SUM,
    ) -> list[list[Value]]:
        """Sums a bucket of tensors over the replicas and gives every replica the whole sums.

        Args:
            at: Where to emit.
            operands: `operands[t][r]` is replica r's contribution to tensor t.
            shapes: The shape each sum is wanted in.
            combine: What takes the place of the addition.

        Returns:
            `sums[t][r]`.
        """

    def slice_own(
        self,
        at: Emitter,
        value: Value,
        layout: Any,
        shard: int,
    ) -> Value:
        """The own shard of a value that the replica holds whole; no communication.

        Args:
            at: Where to emit; its scope is the name of the shard.
            value: A value of `layout.size` elements, on the replica whose shard it is.
            layout: How it is cut.
            shard: Which shard to take; see `shard_of`.

        Returns:
            The shard, a vector.
        """
