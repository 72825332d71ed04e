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
        replica: The number of the replica that runs it, or None where every replica runs it. It is
            no rank within a group of collectives, which is known only when the step runs.
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
        """Whether one copy stands for all replicas."""
        return any(copy.replica is None for copy in self.local)


def in_this_process(devices: Iterable[str]) -> Replicas:
    """Replicas that all have a copy of their own in the graph.

    Args:
        devices: Per replica, its device; none where the graph trains on no replicas.
    """
    local = tuple(ProgramCopy(device, number) for number, device in enumerate(devices))
    return Replicas(len(local), local)


def in_several_processes(devices: Sequence[str], numbers: Sequence[int], total: int) -> Replicas:
    """Replicas of which this process has some, each with a copy of its own.

    Args:
        devices: Per replica of this process, its device.
        numbers: Per replica of this process, its number among all.
        total: How many replicas all processes have.

    Raises:
        ValueError: A number is none of the replicas', or stands twice.
    """
    if len(set(numbers)) != len(numbers) or not set(numbers) <= set(range(total)):
        raise ValueError(f"{list(numbers)} are not numbers of {total} replicas")
    local = tuple(map(ProgramCopy, devices, numbers))
    return Replicas(total, local)


def of_workers(device: str, total: int) -> Replicas:
    """Replicas of which each is a process of its own, all with the same program.

    Which of them this process is, is known only to the group of their collectives.

    Args:
        device: The device of this process's copy.
        total: How many processes there are.
    """
    return Replicas(total, (ProgramCopy(device),), f"{total} workers, a replica each")


def of_one_program(total: int, place: str = "") -> Replicas:
    """Replicas that all run the one copy that the graph holds.

    Those of a TPU do, and so would those that a step traced on one device is asked about.

    Args:
        total: How many there are.
        place: Where they sit.
    """
    return Replicas(total, (ProgramCopy(),), place)
