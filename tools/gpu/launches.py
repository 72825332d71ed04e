"""Which processes train a program, in which order, and what each of them is told and tells.

First four launches whose results are compared: the baseline, the baseline again, the baseline with
its sums in another order, and the sharded run, all with deterministic kernels. Then unsharded and
sharded ones in turn, as users run them, whose times and memory are compared. Plain data.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


class Mode(enum.Enum):
    """What a launch does; the value is its name in jobs, reports and messages."""

    UNSHARDED = "unsharded"
    REPEATED = "unsharded again"
    REORDERED = "unsharded, reordered"
    SHARDED = "sharded"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What holds for all launches.

    Attributes:
        replicas: How many devices, at least 2.
        on_gpus: Whether they are GPUs; else logical CPU devices.
        tiny: Whether programs are made small, to try the check itself.
        compared_steps: Steps of a launch whose results are compared.
        timed_steps: Measured steps of a launch that is timed.
        warmup_steps: Its steps before those; the first one traces.
        pairs: How many pairs of timed launches there are.
        limit_s: Seconds after which a launch counts as hung and is killed.
    """

    replicas: int
    on_gpus: bool
    tiny: bool = False
    compared_steps: int = 10
    timed_steps: int = 30
    warmup_steps: int = 5
    pairs: int = 3
    limit_s: float = 600.0


@dataclasses.dataclass(frozen=True)
class Launch:
    """One process: a program, trained from the seeds that all launches have.

    Attributes:
        program: A name in `programs.PROGRAMS`.
        mode: What it does.
        timed: Whether its time and memory are wanted, and else its weights and slots.
    """

    program: str
    mode: Mode
    timed: bool = False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a launch.

    Attributes:
        launch: Which.
        trouble: Why there are no facts, several lines maybe; "" where there are.
        hung: Whether it was killed as it came to no end.
        was_run: Whether it was run; it is not after one of its mode that failed.
        seconds: How long it ran.
        facts: What it told; see `launch_run.train`.
        nccl: The version that NCCL named as it started; "" where it said nothing.
    """

    launch: Launch
    trouble: str = ""
    hung: bool = False
    was_run: bool = True
    seconds: float = 0.0
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nccl: str = ""


def launches_of(program: str, pairs: int) -> tuple[Launch, ...]:
    """The launches of a program in their order: those to compare, then pairs to time."""
    pair = tuple(Launch(program, mode, timed=True) for mode in (Mode.UNSHARDED, Mode.SHARDED))
    return (*(Launch(program, mode) for mode in Mode), *pair * pairs)


def job_of(launch: Launch, setting: Setting, folder: str) -> dict[str, Any]:
    """What a launch's process is told, as JSON knows it; `launch_run` reads it.

    Args:
        launch: Which.
        setting: What holds for all of them.
        folder: Where it is to leave what it found.
    """
    steps = setting.timed_steps + setting.warmup_steps if launch.timed else setting.compared_steps
    return {
        "program": launch.program,
        "sharded": launch.mode is Mode.SHARDED,
        "reordered": launch.mode is Mode.REORDERED,
        "timed": launch.timed,
        "replicas": setting.replicas,
        "on_gpus": setting.on_gpus,
        "tiny": setting.tiny,
        "steps": steps,
        "warmup_steps": setting.warmup_steps if launch.timed else 1,
        "limit_s": setting.limit_s,
        "folder": folder,
    }
