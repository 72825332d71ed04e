"""What the launches of a program show: do the results agree, at which cost, and what is wrong.

With two replicas, a program whose updates read sums of two summands alone must agree bit for bit.
Elsewhere sums are made in another order, and the demo's measure holds: how far the baseline itself
moves, here under two changes that are none, another run and another order of its examples. That
results agree for some steps proves nothing about longer training.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_wu_shard.demo.agreement import Agreement, worst_difference
from tf_wu_shard.demo.runs import DemoError
from tools.gpu.launches import Launch, Mode, Outcome, Setting
from tools.gpu.programs import PROGRAMS

# What carries the sharded step's sums: the form under test, or it was not tested.
BY_NCCL, BY_RING = "CollectiveReduceScatterV2", "CollectiveAllToAllV2"

# A program of which less is sharded says little about sharding.
_LEAST_SHARE = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """What a compared launch left.

    Attributes:
        facts: See `launch_run.train`.
        weights: By name.
        slots: By name.
    """

    facts: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]
    slots: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Compared:
    """The sharded results against the unsharded ones.

    Attributes:
        agreements: Of losses, weights and slots; what moved is the baseline, under both changes.
        exact: Whether weights and slots have the same bits.
        reproduces: Whether those of the baseline have when it is run again.
        must_be_exact: Whether the sharded ones must.
    """

    agreements: tuple[Agreement, ...]
    exact: bool
    reproduces: bool
    must_be_exact: bool


@dataclasses.dataclass(frozen=True)
class Timed:
    """The timed launches, whose order was unsharded, sharded, and so on.

    Attributes:
        unsharded_s: Median over the launches of the median seconds of a step.
        sharded_s: The same.
        ratios: Sharded over unsharded, one of each pair.
    """

    unsharded_s: float
    sharded_s: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)


@dataclasses.dataclass(frozen=True)
class Memory:
    """One GPU's memory, as TensorFlow's allocator counts it; NCCL's own buffers are not in it.

    Attributes:
        device: Which GPU.
        unsharded_peak: Bytes in use at most in a timed step, over the launches.
        sharded_peak: The same.
        unsharded_after: Bytes in use after the last step: weights, slots and a batch.
        sharded_after: The same.
    """

    device: str
    unsharded_peak: int
    sharded_peak: int
    unsharded_after: int
    sharded_after: int


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of one program.

    Attributes:
        program: Its name.
        compared: None where one of the compared launches failed.
        timed: None where one of the timed ones did.
        memory: Per GPU; empty on CPUs, and where `timed` is None.
        slot_bytes: Of the fullest replica, unsharded and sharded; None where nothing was sharded.
        emitted: Communication steps of the sharded function, from its report.
        collectives: Collective ops by kind of device, op and hint in the sharded functions.
        failures: What is wrong, one text each, with the program's name.
        notes: What is worth knowing and no failure.
    """

    program: str
    compared: Compared | None
    timed: Timed | None
    memory: tuple[Memory, ...]
    slot_bytes: tuple[int, int] | None
    emitted: Mapping[str, int]
    collectives: Mapping[str, int]
    failures: tuple[str, ...]
    notes: tuple[str, ...]


def judged(
    program: str, setting: Setting, outcomes: Sequence[Outcome], trained: Mapping[Mode, Trained]
) -> Result:
    """Judges a program.

    Args:
        program: A name in `programs.PROGRAMS`.
        setting: What held for its launches.
        outcomes: Of all its launches.
        trained: What those left whose results are compared, as far as they ended well.

    Returns:
        The result.
    """
    failures = [
        f"{_name(one.launch)}: {one.trouble}" for one in outcomes if one.trouble and one.was_run
    ]
    notes: list[str] = []
    compared = None
    if all(mode in trained for mode in Mode):
        try:
            compared = compare(program, setting.replicas, trained)
        except DemoError as error:
            failures.append(f"{program}: {error}")
    if compared is not None:
        failures += _disagreements(program, compared)
        if not compared.reproduces:
            notes.append(f"{program}: the unsharded run does not repeat itself bit for bit")
    facts = trained[Mode.SHARDED].facts if Mode.SHARDED in trained else {}
    collectives = counted(facts.get("collectives", ()))
    report = max(facts.get("reports", ()), key=lambda one: len(one["variables"]), default=None)
    if report is not None:
        failures += _wrong_step(program, setting.on_gpus, collectives, report)
    failures += _diverged(outcomes)
    failures += _apart(outcomes)
    return Result(
        program=program,
        compared=compared,
        timed=times(outcomes, setting.warmup_steps),
        memory=memory(outcomes),
        slot_bytes=tuple(report["slot_bytes_per_replica"].values()) if report else None,
        emitted=report["emitted"] if report else {},
        collectives=collectives,
        failures=tuple(failures),
        notes=tuple(notes),
    )


def compare(program: str, replicas: int, trained: Mapping[Mode, Trained]) -> Compared:
    """Holds the sharded results against the unsharded ones.

    Args:
        program: A name in `programs.PROGRAMS`.
        replicas: Number of replicas.
        trained: What the launches left, one of each mode.

    Raises:
        DemoError: Two of them do not have the same variables.
    """
    unsharded = trained[Mode.UNSHARDED]
    reproduces = _bits(unsharded) == _bits(trained[Mode.REPEATED])
    return Compared(
        agreements=tuple(
            _agreement(quantity, {mode: _tensors(quantity, one) for mode, one in trained.items()})
            for quantity in ("losses", "weights", "slots")
        ),
        exact=_bits(unsharded) == _bits(trained[Mode.SHARDED]),
        reproduces=reproduces,
        must_be_exact=replicas == 2 and PROGRAMS[program].exact_at_two and reproduces,
    )


def times(outcomes: Sequence[Outcome], warmup_steps: int) -> Timed | None:
    """Medians and ratios of the timed launches.

    Args:
        outcomes: Of all launches of a program.
        warmup_steps: Steps of each that do not count.

    Returns:
        None where one of them failed, or there are none.
    """
    seconds = [
        [statistics.median(one.facts["step_s"][warmup_steps:]) for one in launches]
        for launches in _timed(outcomes)
    ]
    if not all(seconds):
        return None
    unsharded, sharded = seconds
    return Timed(
        statistics.median(unsharded),
        statistics.median(sharded),
        tuple(after / before for before, after in zip(unsharded, sharded, strict=True)),
    )


def memory(outcomes: Sequence[Outcome]) -> tuple[Memory, ...]:
    """What the timed launches say of each GPU's memory, the largest of each mode."""
    launches = _timed(outcomes)
    if not all(launches):
        return ()
    found = []
    for index, gpu in enumerate(launches[0][0].facts["memory"]):
        most = {
            (mode, what): max(one.facts["memory"][index][what] for one in of_mode)
            for mode, of_mode in zip(("unsharded", "sharded"), launches, strict=True)
            for what in ("peak", "current")
        }
        found.append(
            Memory(
                gpu["device"],
                unsharded_peak=most["unsharded", "peak"],
                sharded_peak=most["sharded", "peak"],
                unsharded_after=most["unsharded", "current"],
                sharded_after=most["sharded", "current"],
            )
        )
    return tuple(found)


def counted(collectives: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Sums collectives up by kind: `GPU CollectiveReduceScatterV2, nccl`.

    Args:
        collectives: As `launch_run.train` returns them.
    """
    found: dict[str, int] = {}
    for one in collectives:
        kind = "GPU" if "GPU" in one["device"] else "CPU"
        key = f"{kind} {one['op']}, {one['hint']}"
        found[key] = found.get(key, 0) + one["count"]
    return dict(sorted(found.items()))


def _timed(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """The unsharded and the sharded timed launches; nothing of either where one failed."""
    timed = [one for one in outcomes if one.launch.timed]
    if any(one.trouble for one in timed):
        return [], []
    sharded = [one for one in timed if one.launch.mode is Mode.SHARDED]
    return [one for one in timed if one.launch.mode is Mode.UNSHARDED], sharded


def _tensors(quantity: str, trained: Trained) -> Mapping[str, np.ndarray]:
    if quantity == "losses":
        return {"losses": np.array(trained.facts["losses"])}
    return trained.weights if quantity == "weights" else trained.slots


def _agreement(quantity: str, tensors: Mapping[Mode, Mapping[str, np.ndarray]]) -> Agreement:
    baseline = tensors[Mode.UNSHARDED]
    difference, worst = worst_difference(quantity, baseline, tensors[Mode.SHARDED])
    moved, _ = max(
        worst_difference(quantity, baseline, tensors[mode])
        for mode in (Mode.REPEATED, Mode.REORDERED)
    )
    return Agreement(quantity, difference, worst, moved)


def _bits(trained: Trained) -> tuple[str, str]:
    return trained.facts["replicas"][0], trained.facts["slots"]


def _disagreements(program: str, compared: Compared) -> list[str]:
    if compared.must_be_exact and not compared.exact:
        most = max(compared.agreements[1:], key=lambda one: one.difference)
        return [
            f"{program}: with two replicas the sharded run must have the unsharded one's bits;"
            f" {most.quantity} differ by {most.difference:.1e} in {most.worst}"
        ]
    return [
        f"{program}: {one.quantity} differ by {one.difference:.1e} in {one.worst},"
        f" and only {one.limit:.1e} is rounding"
        for one in compared.agreements
        if not one.holds
    ]


def _wrong_step(
    program: str, on_gpus: bool, collectives: Mapping[str, int], report: Mapping[str, Any]
) -> list[str]:
    found = []
    wanted = f"GPU {BY_NCCL}, nccl" if on_gpus else f"CPU {BY_RING}, "
    if not any(key.startswith(wanted) for key in collectives):
        found.append(
            f"{program}: the sharded step has no {wanted.rstrip(', ')}, the form under test;"
            f" it has {', '.join(collectives) or 'no collective'}"
        )
    if report["share"] < _LEAST_SHARE:
        found.append(f"{program}: only {report['share']:.0%} is sharded; the report says why")
    return found


def _diverged(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{_name(one.launch)}: a loss is not finite"
        for one in outcomes
        if not one.trouble and not all(math.isfinite(loss) for loss in one.facts["losses"])
    ]


def _apart(outcomes: Sequence[Outcome]) -> list[str]:
    """Launches whose replicas do not have the same weights in the end."""
    return [
        f"{_name(one.launch)}: the replicas' weights have come apart"
        for one in outcomes
        if not one.trouble and len(set(one.facts["replicas"])) > 1
    ]


def _name(launch: Launch) -> str:
    return f"{launch.program}, {launch.mode.value}{', timed' if launch.timed else ''}"
