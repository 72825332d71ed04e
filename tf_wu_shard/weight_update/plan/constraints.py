"""What a plan must leave as it is, as the storage of the variables asks it to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.refusals import Refusal


@dataclasses.dataclass(frozen=True)
class StorageConstraints:
    """What is known of the storage of the variables that a step updates, by their keys.

    Attributes:
        whole_updates: Variables with which their update must stay whole, each with the reason.
        whole_weights: Weights that stay whole even where the others live in shards, each with the
            reason; their updates are shared, and each replica puts the result together at once.
        in_shards: Variables that live in shards already, each with how it is cut. Their updates
            stay sharded however small they are: one that gathers its slots first would be the
            slowest of all. They keep their owners.
    """

    whole_updates: Mapping[str, Refusal] = dataclasses.field(default_factory=dict)
    whole_weights: Mapping[str, Refusal] = dataclasses.field(default_factory=dict)
    in_shards: Mapping[str, AnyLayout] = dataclasses.field(default_factory=dict)

    def keeping(self, key: str, refusal: Refusal, *, update: bool) -> StorageConstraints:
        """The same, with one variable more that stays whole.

        Args:
            key: The variable.
            refusal: Why.
            update: Whether its update stays whole with it.
        """
        name = "whole_updates" if update else "whole_weights"
        return dataclasses.replace(self, **{name: {**getattr(self, name), key: refusal}})
