"""What a rewrite yields, as frozen data: the new graph and its new inputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tf_wu_shard.graph.builder import graph_def_of
from tf_wu_shard.graph.nodes import Edges, edges_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal


@dataclasses.dataclass(frozen=True)
class ShardInput:
    """A new input of the graph: the handle of one shard of one slot.

    Attributes:
        placeholder: Name of the input.
        slot: The slot's key.
        replica: Which shard; 0 where one program stands for all replicas.
        handle: Name of the op that yields the handle to the program.
    """

    placeholder: str
    slot: str
    replica: int
    handle: str

    @property
    def is_packed(self) -> bool:
        """Whether it stands for all shards, each replica's own in its program."""
        return self.handle != self.placeholder


@dataclasses.dataclass(frozen=True)
class Region:
    """What XLA is to compile of an update, or of a call in the step as it was traced.

    Attributes:
        name: The update's name, or the call's.
        ops: Names of ops that were emitted for it; in a result, of those that XLA can compile.
        handles: Names of the handles that they read and write for others not to see before the end.
        variables: By device, the handle of a variable there that has a value.
        exact: Whether XLA must compute the very bits that the ops do.
        as_asked_for: Whether it compiled all of this in the step as it was traced.
    """

    name: str
    ops: frozenset[str]
    handles: frozenset[str]
    variables: Mapping[str, str]
    exact: bool
    as_asked_for: bool = False


@dataclasses.dataclass(frozen=True)
class RewriteResult:
    """A rewritten graph.

    Attributes:
        nodes: The NodeDefs of the new graph; some are the old graph's own: not to be changed.
        source: The GraphDef that was rewritten, whose versions and functions stay.
        shard_inputs: Placeholders to bind to the shards of the slots.
        control_outputs: Names of the ops that must run.
        outputs: The values that the graph returns, in the old order.
        emitted: How many communication steps of each kind were emitted; `Report` lists the kinds.
        assigns: Per sharded weight, by replica, the ops that write it.
        taken_places: For each op that took the place of old ones, by name, the names of these.
        regions: What of it XLA is to compile.
        left_open: Why it compiles nothing of some updates after all, by their names.
        at_a_time: How many replicas compute their gradients at a time; 0 where none is held back.
    """

    nodes: tuple[Any, ...]
    source: Any
    shard_inputs: tuple[ShardInput, ...]
    control_outputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    emitted: dict[str, int]
    assigns: dict[str, tuple[tuple[str, ...], ...]]
    taken_places: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    left_open: Mapping[str, Refusal] = dataclasses.field(default_factory=dict)
    at_a_time: int = 0

    @functools.cached_property
    def edges(self) -> tuple[Edges, ...]:
        """The new graph's edges."""
        return edges_of(self.nodes)

    @functools.cached_property
    def graph_def(self) -> Any:
        """The new graph, with the old one's function library."""
        return graph_def_of(self.nodes, self.source)

    def view(self, before: GraphView) -> GraphView:
        """The new graph, with what is known of the variables of the old one."""
        # What stayed has the shapes that it had; those of what was emitted follow.
        return before.with_part_wise({}).with_graph(
            self.graph_def, outputs=self.outputs, control_outputs=self.control_outputs
        )
