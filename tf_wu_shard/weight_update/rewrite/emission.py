"""What everything that emits for one rewrite shares."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect, Entries, Uneven
from tf_wu_shard.weight_update.rewrite.graph_edit import GraphEdit
from tf_wu_shard.weight_update.rewrite.names import scope_of


@dataclasses.dataclass(frozen=True)
class Emission:
    """One rewrite under way.

    Attributes:
        view: The old graph.
        builder: Where new nodes are collected.
        dialect: How replicas communicate.
        edit: What takes the place of the old graph's ops and values.
        handles: For each variable in shards, by key, per copy of the update the handle of its
            shard.
    """

    view: GraphView
    builder: GraphBuilder
    dialect: Dialect
    edit: GraphEdit
    handles: dict[str, list[Value]] = dataclasses.field(default_factory=dict)

    @property
    def uneven(self) -> Uneven:
        """What replicas exchange that do not all do the same."""
        found = self.dialect.uneven
        assert found is not None, "the analysis finds such updates for such replicas only"
        return found

    @property
    def entries(self) -> Entries:
        """How replicas exchange lists of entries."""
        found = self.dialect.entries
        assert found is not None, "sparse gradients are recognised for such replicas only"
        return found

    def at(self, device: str, variable: str, what: str) -> Emitter:
        """Where ops are emitted that do `what` to a variable, see `names.scope_of`."""
        return self.builder.at(device, scope_of(variable, what))
