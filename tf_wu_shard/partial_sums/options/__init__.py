"""What the user asked for: the `partial_gradient_sums` flag and the options it may carry."""

from __future__ import annotations

import dataclasses
from typing import Literal

from tf_wu_shard.config import read_flag
from tf_wu_shard.errors import OptionError

FLAG = "partial_gradient_sums"

Mode = Literal["majority", "solo"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartialSums:
    """How late a replica may be for a sum of gradients.

    Attributes:
        max_staleness: How many steps in a row a replica may be late; at least 1. Then the others
            wait for it.
        mode: Who starts a round of workers: "majority" is one of them drawn at random for each, so
            that about half are in time, "solo" whoever is first. Replicas of one process take every
            step together, and have no rounds.
        seed: What the draws of "majority" begin with; the same on all workers.

    Raises:
        OptionError: A field has the wrong type or is out of range.
    """

    max_staleness: int = 2
    mode: Mode = "majority"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in ("majority", "solo"):
            raise OptionError(f"PartialSums.mode must be 'majority' or 'solo', not {self.mode!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise OptionError(
                f"PartialSums.seed must be an integer, not {self.seed!r}"
                f" ({type(self.seed).__name__})"
            )
        steps = self.max_staleness
        # bool is an int to Python; True steps is nobody's intention.
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise OptionError(
                "PartialSums.max_staleness must be an integer of at least 1, not"
                f" {steps!r} ({type(steps).__name__})"
            )


def parse_flag(value: object) -> PartialSums | None:
    """Reads a value of the flag.

    Args:
        value: True, False, None or a `PartialSums`.

    Returns:
        The options (the defaults for True), or None when the flag is off.

    Raises:
        OptionError: The value is anything else.
    """
    return read_flag(FLAG, PartialSums, value)


def current_options() -> PartialSums | None:
    """Reads the flag from TensorFlow's live context; None when it is off or was never set."""
    # Imported here, as options are read without TensorFlow, too.
    from tf_wu_shard.tensorflow_private import context_options

    return parse_flag(context_options.option(FLAG))
