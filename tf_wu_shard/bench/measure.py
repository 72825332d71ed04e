"""The measurement: three processes that take steps in turn, so that all meet the same machine.

Every round is one step of each mode and one copy of memory; only one process works at a time.
Times are medians over the rounds after the warm-up. This process measures nothing but the copy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tf_wu_shard.bench import formulas
from tf_wu_shard.bench.conversation import Worker, WorkerError
from tf_wu_shard.bench.copy_speed import DEFAULT_BYTES, CopySpeed
from tf_wu_shard.bench.result import BeforeAfter, Result, StepTimes
from tf_wu_shard.bench.settings import MODES, Settings

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class _Samples:
    """Seconds of each round's steps by mode, and bytes a second of its copy."""

    seconds: dict[str, list[float]]
    copies: list[float]


def measure(settings: Settings, say: Say) -> Result:
    """Runs the benchmark.

    Args:
        settings: What is measured.
        say: Called with a line on what goes on.

    Raises:
        OptionError: The model cannot be built as the settings say.
        WorkerError: A measured process failed, for one because nothing could be sharded.
    """
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        first: dict[str, float] = {}
        for mode in MODES:
            say(f"{mode}: building and tracing")
            workers[mode] = stack.enter_context(start(mode))
            built = workers[mode].ask("build", settings=dataclasses.asdict(settings), mode=mode)
            first[mode] = workers[mode].ask("step")["seconds"]
        for number in range(1, settings.warmup):
            say(f"warm-up {number} of {settings.warmup - 1}")
            for worker in workers.values():
                worker.ask("step")
        samples = _rounds(workers, settings.steps, say, DEFAULT_BYTES)
        memory = {mode: workers[mode].ask("memory") for mode in ("unsharded", "sharded")}
        say("comparing weights")
        difference = max_abs_weight_diff(workers["unsharded"], workers["sharded"], settings)
        report = _report(workers["sharded"])
        slots = workers["unsharded"].ask("slots")
    seconds, parameter_bytes = samples.seconds, built["parameter_bytes"]
    pairs = zip(seconds["unsharded"], seconds["sharded"], strict=True)
    return Result(
        settings=settings,
        parameter_bytes=parameter_bytes,
        step_s=StepTimes(**{mode: statistics.median(seconds[mode]) for mode in seconds}),
        first_step_s=StepTimes(**first),
        ratio_of_pairs=statistics.median(sharded / whole for whole, sharded in pairs),
        slot_bytes_per_replica=BeforeAfter(slots, report["slot_bytes_sharded"]),
        rss_growth_bytes=BeforeAfter(memory["unsharded"], memory["sharded"]),
        max_abs_weight_diff=difference,
        pass_ms=report["pass_ms"],
        trace_ms=report["trace_ms"],
        copy_bytes_per_s=statistics.median(samples.copies),
        bytes_moved=formulas.bytes_moved(settings.optimizer, settings.replicas, parameter_bytes),
    )


def start(mode: str) -> Worker:
    """Returns a new measured process of ours; ask it to `build` first.

    Args:
        mode: Its name in errors.
    """
    return Worker(mode, [sys.executable, "-m", "tf_wu_shard.bench.worker"])


def max_abs_weight_diff(one: Worker, other: Worker, settings: Settings) -> float:
    """Compares the weights of two processes as they stand, each replica's own copy of them.

    Args:
        one: A measured process between two steps.
        other: Another, of the same settings.
        settings: These.

    Returns:
        The largest absolute difference of two elements; NaN where only one of them is.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [str(pathlib.Path(folder, name)) for name in ("one.npz", "other.npz")]
        worst = 0.0
        for replica in range(settings.replicas):
            for worker, file in zip((one, other), files, strict=True):
                worker.ask("weights", replica=replica, file=file)
            with np.load(files[0]) as ours, np.load(files[1]) as theirs:
                for name in ours.files:
                    worst = float(np.maximum(worst, _largest_difference(ours[name], theirs[name])))
    return worst


def _largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    # Equal infinities have no difference, and are put to 0 below.
    with np.errstate(invalid="ignore"):
        differences = np.abs(one - other)
    return float(np.max(np.where(equal, 0, differences), initial=0))


def _rounds(workers: Mapping[str, Worker], steps: int, say: Say, copy_bytes: int) -> _Samples:
    samples = _Samples({mode: [] for mode in workers}, [])
    with contextlib.closing(CopySpeed(copy_bytes)) as copy_speed:
        for number in range(1, steps + 1):
            say(f"round {number} of {steps}")
            for mode, worker in workers.items():
                samples.seconds[mode].append(worker.ask("step")["seconds"])
            samples.copies.append(copy_speed.bytes_per_s())
    return samples


def _report(sharded: Worker) -> dict[str, Any]:
    """The report of the one function that was rewritten."""
    reports = [report for report in sharded.ask("reports") if report["sharded_variables"]]
    if len(reports) != 1:
        raise WorkerError(f"sharded: {len(reports)} functions were rewritten, not one")
    return reports[0]
