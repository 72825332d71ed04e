"""Who starts a round: anybody a solo one, and one of the majority that all workers draw alike."""

from __future__ import annotations

import collections

from tf_wu_shard.partial_sums.rounds.starts import may_start


def test_one_worker_starts_a_round_of_the_majority_and_each_as_many() -> None:
    starts = [
        [worker for worker in range(4) if may_start("majority", 7, number, worker, 4)]
        for number in range(4000)
    ]
    assert all(len(one) == 1 for one in starts)
    counts = collections.Counter(worker for (worker,) in starts)
    # Of 4,000 even draws a count is 1,000 give or take 27; five times that is never seen.
    assert all(abs(count - 1000) < 137 for count in counts.values())


def test_another_seed_draws_others() -> None:
    drawn = [
        [may_start("majority", seed, number, 0, 4) for number in range(100)] for seed in (7, 7, 8)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_all_processes_draw_what_they_always_drew() -> None:
    starts = [
        worker
        for number in range(8)
        for worker in range(3)
        if may_start("majority", 0, number, worker, 3)
    ]
    # What Python's random.Random("0/0").randrange(3) yields, and so on, on any machine.
    assert starts == [1, 2, 1, 2, 2, 1, 1, 2]


def test_a_worker_alone_starts_every_round() -> None:
    assert all(may_start("majority", 3, number, 0, 1) for number in range(9))


def test_any_worker_starts_a_solo_round() -> None:
    assert all(
        may_start("solo", 7, number, worker, 4) for number in range(9) for worker in range(4)
    )
