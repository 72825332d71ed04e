"""Trainings of two workers with round times, as if they had been measured."""

from __future__ import annotations

from tf_wu_shard.bench.imbalance.result import SYNCHRONOUS, ImbalanceResult, Step, Training


def training(mode: str, seed: int, step_s: float, score: float, momentum: float = 0.0) -> Training:
    """Four steps, in each of which both workers wait for as long as they work."""
    steps = tuple(
        Step(n * step_s, n * step_s, (n + 0.5) * step_s, (n + 1) * step_s) for n in range(4)
    )
    return Training(mode, momentum, seed, (steps, steps), (3.0, 2.0, 1.0, 0.5), 0.75, 2, 0, score)


def result(*more: Training) -> ImbalanceResult:
    """Three seeds, synchronous and in rounds that are twice as fast; and more trainings."""
    trainings = [
        *(training(SYNCHRONOUS, seed, 0.2, 90.0) for seed in range(3)),
        *(training("majority", seed, 0.1, 88.0 + seed) for seed in range(3)),
        *more,
    ]
    return ImbalanceResult("one", 80, "digits", 2, "accuracy, %", tuple(trainings))
