"""Who trains a step, as data: all copies here, some of them, or one that stands for all."""

from __future__ import annotations

import pytest

from tf_wu_shard.replicas import in_several_processes, in_this_process, of_one_program


def test_each_replica_of_one_process_has_a_copy() -> None:
    replicas = in_this_process(("d0", "d1"))
    assert (replicas.total, replicas.devices) == (2, ("d0", "d1"))
    assert not replicas.run_one_program
    assert in_this_process(()).total == 0


def test_a_process_holds_some_of_the_replicas() -> None:
    replicas = in_several_processes(("d0", "d1"), (2, 3), 4)
    assert (replicas.total, replicas.devices) == (4, ("d0", "d1"))
    assert [copy.replica for copy in replicas.local] == [2, 3]
    assert not replicas.run_one_program


@pytest.mark.parametrize("numbers", [(0, 4), (1, 1)])
def test_numbers_that_are_not_the_replicas_are_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="are not numbers of 4 replicas"):
        in_several_processes(("d0", "d1"), numbers, 4)


def test_one_program_stands_for_all() -> None:
    replicas = of_one_program(8, "a torus")
    assert (replicas.total, len(replicas.local), replicas.place) == (8, 1, "a torus")
    assert replicas.run_one_program
