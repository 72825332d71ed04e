"""Who trains a step: how many replicas, which of them a graph holds, and where they sit.

It is decided once, from what the graph captured; nothing afterwards asks for the strategy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class ProgramCopy:
    """One copy of the replicas' program in a graph.

    Attributes:
        device: Where it runs; "" where the graph does not say.
        replica: The number of the replica that runs it, or None where one of every process does,
            or all replicas do. It is no rank within a group of collectives, which is known only
            when the step runs.
    """

    device: str = ""
    replica: int | None = None


@dataclasses.dataclass(frozen=True)
class Replicas:
    """The replicas that train a step.

    Attributes:
        total: How many there are; 0 where the graph trains on none.
        local: The copies of their program that the graph holds. There are fewer than replicas
            where all run one program, or where others run in other processes.
        place: Where they sit and which groups follow from that, for a reader; "" where all share
            one process.
    """

    total: int
    local: tuple[ProgramCopy, ...]
    place: str = ""

    @property
    def devices(self) -> tuple[str, ...]:
        """Per copy that the graph holds, its device."""
        return tuple(copy.device for copy in self.local)

    @property
    def run_one_program(self) -> bool:
        """Whether a copy stands for several replicas, of which each is to do the same."""
        return any(copy.replica is None for copy in self.local)


def in_this_process(devices: Iterable[str]) -> Replicas:
    """Replicas that all have a copy of their own in the graph.

    Args:
        devices: Per replica, its device; none where the graph trains on no replicas.
    """
    local = tuple(ProgramCopy(device, number) for number, device in enumerate(devices))
    return Replicas(len(local), local)


def of_workers(devices: Sequence[str], total: int) -> Replicas:
    """Replicas of which each process has as many, all with the same program.

    Which of them those of this process are, is known only to the group of their collectives.

    Args:
        devices: Per copy that this process holds, its device.
        total: How many replicas all processes have.

    Raises:
        ValueError: The processes cannot have as many each.
    """
    workers, rest = divmod(total, len(devices))
    if rest:
        raise ValueError(f"{total} replicas are no multiple of the {len(devices)} of one process")
    each = "a replica" if len(devices) == 1 else f"{len(devices)} replicas"
    place = f"{workers} workers, {each} each"
    return Replicas(total, tuple(map(ProgramCopy, devices)), place)


def of_one_program(total: int, place: str = "") -> Replicas:
    """Replicas that all run the one copy that the graph holds.

    Those of a TPU do, and so would those that a step traced on one device is asked about.

    Args:
        total: How many there are.
        place: Where they sit.
    """
    return Replicas(total, (ProgramCopy(),), place)
