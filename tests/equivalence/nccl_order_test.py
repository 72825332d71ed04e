"""A step of GPUs has its collectives in one order, the strategy's own among them, and trains."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.equivalence.own_process import answer_of
from tests.workers.processes import launch

STEPS = ("dense adam", "dense lamb", "rows adam")

# Norms are added up shard by shard there, two sums in another order of numbers around 1.
_NORMS = {"dense lamb": 1e-6}


@functools.cache
def mirrored() -> Any:
    """What came of the steps on two devices of a process."""
    return answer_of("nccl_order_run", "mirrored")


@functools.cache
def workers() -> list[Any]:
    """What came of them on two workers, by worker."""
    launched = launch("tests.equivalence.nccl_order_run", ["workers"], workers=2, seconds=300)
    return [worker.answer for worker in launched]


def check(found: Any, name: str) -> None:
    """Collectives of NCCL were emitted, and what was trained is what it was."""
    assert found[name]["emitted"]["CollectiveReduceScatterV2"] >= 1
    assert found[name]["by"] <= _NORMS.get(name, 0.0)
    (report,) = found[name]["reports"]
    assert ": sharded " in report


@pytest.mark.parametrize("name", STEPS)
def test_two_devices_have_all_collectives_in_one_order(name: str) -> None:
    check(mirrored(), name)
    first, second = mirrored()[name]["orders"]
    assert first == second
    # Sums of the strategy stand before and after the new ones.
    assert {"own", "new"} == {word.split()[1] for word in first}
    assert " own " in first[0] and " own " in first[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_two_workers_have_all_collectives_in_one_order(name: str) -> None:
    for worker in workers():
        check(worker, name)
    first, second = (worker[name]["orders"] for worker in workers())
    assert first == second and len(first) == 1
