"""What is compiled: a model or a script, for which slice, with which options."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_wu_shard.bench.optimizers import NAMES
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import OptionError
from tf_wu_shard.topology import Topology, parse_topology

DEFAULT_BATCH = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """One step to compile.

    Attributes:
        topology: A name that `parse_topology` knows.
        model: A name that `tf_wu_shard.models.build` knows; None with a script.
        optimizer: A name in `tf_wu_shard.bench.optimizers.NAMES`; the model is trained with it.
        batch: Examples a replica; of a script, where its trace leaves that open. None for a
            model means `DEFAULT_BATCH`.
        script: A training script for a TPU, run until it traces a train step; None with a model.
        arguments: The script's own.
        gather_dtype: What updated weights travel in, such as "bfloat16"; None for their own type.

    Raises:
        OptionError: A field names nothing known or is out of range.
    """

    topology: str
    model: str | None = None
    optimizer: str = "adam"
    batch: int | None = None
    script: str | None = None
    arguments: tuple[str, ...] = ()
    gather_dtype: str | None = None

    def __post_init__(self) -> None:
        parse_topology(self.topology)
        if (self.model is None) == (self.script is None):
            raise OptionError("name a model or a script, and not both")
        if self.optimizer not in NAMES:
            known = ", ".join(NAMES)
            raise OptionError(f"no optimizer is called {self.optimizer!r}; choose one of {known}")
        if self.batch is None and self.model is not None:
            object.__setattr__(self, "batch", DEFAULT_BATCH)
        if self.batch is not None and self.batch < 1:
            raise OptionError(f"batch must be at least 1, not {self.batch}")
        # Refused now and not after minutes.
        _ = self.sharding_options

    @property
    def slice(self) -> Topology:
        """The slice that the topology's name stands for."""
        return parse_topology(self.topology)

    @property
    def sharding_options(self) -> ShardingOptions:
        """The value of the flag for the sharded step."""
        options: dict[str, Any] = {}
        if self.gather_dtype is not None:
            options["gather_dtype"] = self.gather_dtype
        unknown = set(options) - {field.name for field in dataclasses.fields(ShardingOptions)}
        if unknown:
            raise OptionError(f"ShardingOptions has no field {unknown.pop()!r}")
        return ShardingOptions(**options)
