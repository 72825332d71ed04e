"""Trains in all modes in turn, with workers that are late by plan or by their work."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from tf_wu_shard.bench import local_cluster
from tf_wu_shard.bench.conversation import WorkerError
from tf_wu_shard.bench.imbalance.delays import Kind, delays
from tf_wu_shard.bench.imbalance.result import (
    SYNCHRONOUS,
    ImbalanceResult,
    Step,
    Training,
    waits_of,
)
from tf_wu_shard.errors import OptionError

MODES = (SYNCHRONOUS, "majority", "solo")

# Plain SGD, and with the momentum that most train with: what is late comes with more weight.
_MOMENTUMS = (0.0, 0.9)

_SCORES = {
    **dict.fromkeys(("digits", "digits_by_fit"), "accuracy, %"),
    **dict.fromkeys(("language_model", "text"), "perplexity"),
}

TASKS = tuple(_SCORES)


def measure_imbalance(
    kind: Kind,
    milliseconds: float,
    task: str,
    workers: int,
    batch: int,
    steps: int,
    seeds: int,
    max_staleness: int,
    say: Callable[[str], None],
) -> ImbalanceResult:
    """Runs the benchmark: of each seed and momentum a training in each mode, on one cluster.

    Args:
        kind: What makes workers late.
        milliseconds: The longest delay.
        task: What is trained, one of `TASKS`.
        workers: How many processes.
        batch: Examples a worker and step.
        steps: Steps of each training.
        seeds: How many seeds; of weights, data, draws and delays.
        max_staleness: As in `tf_wu_shard.PartialSums`.
        say: Called with a line on what goes on.

    Raises:
        OptionError: A number is out of range.
        WorkerError: A worker failed, or the workers' weights are not the same.
    """
    for name, value, least in (
        ("replicas", workers, 2),
        ("batch", batch, 1),
        ("steps", steps, 1),
        ("seeds", seeds, 1),
    ):
        if value < least:
            raise OptionError(f"{name} must be at least {least}, not {value}")
    if milliseconds < 0:
        raise OptionError(f"late must be at least 0, not {milliseconds:g}")
    if task == "digits_by_fit" and importlib.util.find_spec("tf_keras") is None:
        raise OptionError("the task digits_by_fit trains by tf_keras: pip install tf-keras")
    found: list[Training] = []
    with local_cluster.running(workers, "tf_wu_shard.bench.imbalance.worker") as cluster:
        for seed in range(seeds):
            planned = delays(kind, workers, steps, milliseconds / 1e3, seed)
            for momentum in _MOMENTUMS:
                # In turn, as the machine is not equally fast all the time.
                for mode in (*MODES[seed % 3 :], *MODES[: seed % 3]):
                    say(f"seed {seed + 1} of {seeds}, momentum {momentum:g}, {mode}")
                    answers = cluster.ask(
                        "train",
                        name=task,
                        mode=mode,
                        momentum=momentum,
                        batch=batch,
                        seed=seed,
                        max_staleness=max_staleness,
                        delays=planned,
                    )
                    found.append(_training(mode, momentum, seed, answers))
    order = {mode: place for place, mode in enumerate(MODES)}
    found.sort(key=lambda one: (one.momentum, order[one.mode], one.seed))
    return ImbalanceResult(kind, milliseconds, task, workers, _SCORES[task], tuple(found))


def _training(mode: str, momentum: float, seed: int, answers: Sequence[dict[str, Any]]) -> Training:
    if len({answer["digest"] for answer in answers}) > 1:
        raise WorkerError(f"{mode}: the workers' weights are not the same after training")
    steps = [_steps(answer) for answer in answers]
    if mode == SYNCHRONOUS:
        steps = waits_of(steps)
    each = zip(*(answer["losses"] for answer in answers), strict=True)
    return Training(
        mode=mode,
        momentum=momentum,
        seed=seed,
        steps=tuple(tuple(worker) for worker in steps),
        # Each worker divides by their number.
        losses=tuple(sum(losses) for losses in each),
        share_in_time=answers[0]["share_in_time"],
        staleness=answers[0]["staleness"],
        held_up=answers[0]["held_up"],
        score=answers[0]["score"],
    )


def _steps(answer: dict[str, Any]) -> list[Step]:
    times = answer["times"]
    handed_in = answer["handed_in"] or [ended for _, _, ended in times]
    return [
        Step(begun, ready, there, ended)
        for (begun, ready, ended), there in zip(times, handed_in, strict=True)
    ]
