"""Who trains a step, as data: all copies here, some of them, or one that stands for all."""

from __future__ import annotations

import pytest

from tf_wu_shard.replicas import in_this_process, of_one_program, of_workers


def test_each_replica_of_one_process_has_a_copy() -> None:
    replicas = in_this_process(("d0", "d1"))
    assert (replicas.total, replicas.devices) == (2, ("d0", "d1"))
    assert not replicas.run_one_program
    assert in_this_process(()).total == 0


@pytest.mark.parametrize(
    ("devices", "place"),
    [(("d0",), "4 workers, a replica each"), (("d0", "d1"), "2 workers, 2 replicas each")],
)
def test_a_copy_stands_for_a_replica_of_each_worker(devices: tuple[str, ...], place: str) -> None:
    replicas = of_workers(devices, 4)
    assert (replicas.total, replicas.devices, replicas.place) == (4, devices, place)
    assert replicas.run_one_program


def test_workers_of_unlike_numbers_of_replicas_are_refused() -> None:
    with pytest.raises(ValueError, match="4 replicas are no multiple of the 3 of one process"):
        of_workers(("d0", "d1", "d2"), 4)


def test_one_program_stands_for_all() -> None:
    replicas = of_one_program(8, "a torus")
    assert (replicas.total, len(replicas.local), replicas.place) == (8, 1, "a torus")
    assert replicas.run_one_program
