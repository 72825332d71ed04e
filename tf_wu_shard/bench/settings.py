"""What is measured: the strategy, the model, the optimizer and how often.

Answers: are these arguments possible, in one line each. Sizes that only the model can judge (has it
a width at all?) are judged where it is built.
"""

from __future__ import annotations

import dataclasses

from tf_wu_shard.bench.optimizers import SLOTS
from tf_wu_shard.errors import OptionError

STRATEGIES = ("mirrored", "workers")
MODES = ("unsharded", "sharded", "no_update")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """One benchmark run.

    Attributes:
        strategy: "mirrored", a MirroredStrategy over logical CPU devices, or "workers", a
            MultiWorkerMirroredStrategy of processes with a replica each.
        replicas: Its number of replicas, at least 2.
        model: A name that `tf_wu_shard.models.build` knows.
        width: The model's argument of that name; None leaves its default.
        depth: The same.
        batch: Examples per replica and step.
        optimizer: A name in `tf_wu_shard.bench.optimizers.SLOTS`.
        epsilon: Of the optimizer; None leaves Keras's.
        steps: Measured steps of each mode.
        warmup: Steps of each mode before those, the first of which traces; at least 1.
        seed: Of the weights and the data.
        min_elements: As in `tf_wu_shard.ShardingOptions`.

    Raises:
        OptionError: A field names nothing known or is out of range.
    """

    strategy: str = "mirrored"
    replicas: int = 8
    model: str = "mlp"
    width: int | None = None
    depth: int | None = None
    batch: int = 4
    optimizer: str = "adam"
    epsilon: float | None = None
    steps: int = 10
    warmup: int = 3
    seed: int = 0
    min_elements: int | None = None

    def __post_init__(self) -> None:
        _check_name("strategy", self.strategy, STRATEGIES)
        _check_name("optimizer", self.optimizer, tuple(SLOTS))
        _check_count("replicas", self.replicas, 2)
        for field in ("batch", "steps", "warmup"):
            _check_count(field, getattr(self, field), 1)
        for field in ("width", "depth"):
            if getattr(self, field) is not None:
                _check_count(field, getattr(self, field), 1)

    @property
    def model_sizes(self) -> dict[str, int]:
        """The arguments of the model's builder that were given."""
        sizes = {"width": self.width, "depth": self.depth}
        return {name: size for name, size in sizes.items() if size is not None}


def _check_name(field: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise OptionError(f"no {field} is called {value!r}; choose one of {', '.join(valid)}")


def _check_count(field: str, value: int, least: int) -> None:
    if value < least:
        raise OptionError(f"{field} must be at least {least}, not {value}")
