"""A traced train step as passes hand it on: data, of which nothing live is changed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import Replicas
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.gradient_shapes import ensured_shapes, weight_of, with_ensured
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.tensorflow_private.graph_rebuilding import NewBody


class PerReplica(Protocol):
    """Storage with a variable on each replica, each of which only that replica uses."""

    @property
    def handles(self) -> tuple[Any, ...]:
        """Their resource handles, eager tensors, by replica."""

    @property
    def packed_handle(self) -> Any:
        """One handle for all, of which an op on a replica's device sees that replica's."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A traced function, and what passes have made of it so far.

    Attributes:
        graph: The FuncGraph as it was traced.
        captured: The program as it is now, and the variables behind it.
        dialect: How its replicas exchange data.
        bindings: For each input that a pass added, by its placeholder's name, the handle to bind.
        owners: What is to live as long as the function does.
        is_changed: Whether a pass has changed the program.
        changes: What passes changed in it, by their flags, in a few words each; for the report.
            What a run changes is called when the report is asked for.
        unsharded: Why none of its updates may be sharded, where a pass has made it so.
        body: What takes the program's place, where the last pass does not make a view of it.
        dropped: Placeholders of captures that it does not need.
        components: Whose components of variables in shards it accessed, see
            `captures.note_components`.
        pending: What `storage` is to commit once the function that takes this one's place is made.
        reports: What passes say of it, without times.
        reported: The ids of the variables that these name.
    """

    graph: Any
    captured: Captured
    dialect: Dialect
    bindings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    owners: tuple[Any, ...] = ()
    is_changed: bool = False
    changes: Mapping[str, str | Callable[[], str]] = dataclasses.field(default_factory=dict)
    unsharded: Refusal | None = None
    body: NewBody | None = None
    dropped: Sequence[str] = ()
    components: Mapping[int, frozenset[int]] = dataclasses.field(default_factory=dict)
    pending: Sequence[Any] = ()
    reports: Sequence[Any] = ()
    reported: frozenset[int] = frozenset()

    @property
    def view(self) -> GraphView:
        """The program as it is now."""
        return self.captured.view

    @property
    def replicas(self) -> Replicas:
        """Who runs it."""
        return self.dialect.replicas

    @functools.cached_property
    def _found(self) -> tuple[tuple[GradientReduction, ...], tuple[Refusal, ...]]:
        carried, refused = self.dialect.recognise(self.view)
        ensured = ensured_shapes(self.view, carried)
        view = with_ensured(self.view, ensured)
        return gradient_reductions(view, carried, ensured), tuple(refused)

    @property
    def reductions(self) -> tuple[GradientReduction, ...]:
        """Every sum over the replicas, of gradients and perhaps of losses and metrics."""
        return self._found[0]

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """Why other sums are none that a pass can work with."""
        return self._found[1]

    def weight_of(self, reduction: GradientReduction) -> str:
        """The trainable variable that a sum updates, by its key in `captured.variables`.

        A sum of another size (a number of tokens that gradients are divided by) updates none, nor
        does one that is written to no trainable variable (a loss, statistics): "". What has the
        variable's size and enters its update counts, be it a gradient or a factor of one.

        Args:
            reduction: One of `reductions`.
        """
        key = weight_of(self.view, reduction.operands[0], reduction.results[0])
        return key if key in self.captured.variables else ""
