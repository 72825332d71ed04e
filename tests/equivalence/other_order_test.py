"""More workers than two sum in another order than unsharded ones, and in nothing else apart.

What another order may change is measured: the unmodified training again, with gradients packed
otherwise, so that TensorFlow's ring begins to add them up on other workers. A sharded training may
be four times as far away.
"""

from __future__ import annotations

import functools
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest

from tests.equivalence.reordered import farthest
from tests.workers.processes import launch

WITHOUT_NORMS = ("sgd", "momentum", "adam", "adamw")

# Of two workers nothing but norms and means is added up in another order. Between training runs of
# 20 steps that is some roundings of float32, 6e-8 each, a step.
WITH_NORMS = ("lamb", "adafactor")
NORMS_IN_PARTS = 2e-6

_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def found(mode: str, workers: int, *optimizers: str) -> list[Any]:
    """What the workers of a launch print."""
    folder = pathlib.Path(_FOLDER.name) / str(workers)
    folder.mkdir(exist_ok=True)
    arguments = [str(folder), mode, *optimizers]
    done = launch("tests.equivalence.other_order_run", arguments, workers, seconds=300)
    return [worker.answer for worker in done]


def values(mode: str, workers: int, *optimizers: str, name: str) -> list[np.ndarray]:
    """Weights and slots of worker 0."""
    found(mode, workers, *optimizers)
    with np.load(pathlib.Path(_FOLDER.name) / str(workers) / f"{mode}-{name}.npz") as kept:
        return [kept[key] for key in kept.files]


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_NORMS)
def test_four_workers_are_as_near_as_another_order_of_sums(name: str) -> None:
    plain, otherwise, sharded = (
        values(mode, 4, *WITHOUT_NORMS, name=name)
        for mode in ("plain", "packed_otherwise", "sharded")
    )
    moved, apart = farthest(plain, otherwise), farthest(plain, sharded)
    print(f"{name}: another order {moved:.2e}, sharded {apart:.2e}")
    assert 0 < apart <= 4 * moved


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_NORMS)
def test_four_workers_end_with_the_same_bits(name: str) -> None:
    first, *others = (worker[name] for worker in found("sharded", 4, *WITHOUT_NORMS))
    assert first["verdicts"] == ["sharded"]
    assert all(other == first for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_NORMS)
def test_norms_that_two_workers_add_up_in_parts_are_near(name: str) -> None:
    plain, sharded = (values(mode, 2, *WITH_NORMS, name=name) for mode in ("plain", "sharded"))
    apart = farthest(plain, sharded)
    print(f"{name}: sharded {apart:.2e}")
    assert apart <= NORMS_IN_PARTS
    first, second = (worker[name] for worker in found("sharded", 2, *WITH_NORMS))
    assert first == second and first["verdicts"] == ["sharded"] and first["in_shards"] >= 4
