"""More replicas than two sum in another order than unsharded ones, and in nothing else apart.

What another order may change is measured: the unmodified training again, with gradients packed
otherwise, so that TensorFlow's ring begins to add them up on other workers. A sharded training may
be four times as far away.
"""

from __future__ import annotations

import functools
import pathlib
import tempfile
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.equivalence.reordered import farthest
from tests.workers.processes import launch

WITHOUT_NORMS = ("sgd", "momentum", "adam", "adamw")

# Of two workers nothing but norms and means is added up in another order. Between training runs of
# 20 steps that is some roundings of float32, 6e-8 each, a step.
WITH_NORMS = ("lamb", "adafactor")
NORMS_IN_PARTS = 2e-6

# What is trained by twelve workers.
MANY = ("momentum", "adam")

# Floats at a multiple of which shards begin.
LANE = 16

_FOLDER = tempfile.TemporaryDirectory()


class Cluster(NamedTuple):
    """Workers that are launched together."""

    workers: int
    replicas: int = 1

    def __str__(self) -> str:
        return f"{self.workers}_of_{self.replicas}"

    @property
    def folder(self) -> pathlib.Path:
        """Where worker 0 keeps what it trained."""
        folder = pathlib.Path(_FOLDER.name) / str(self)
        folder.mkdir(exist_ok=True)
        return folder


TWELVE = Cluster(12)

# With what each trains, all of them in one launch.
TRAINED = {
    Cluster(4): WITHOUT_NORMS,
    Cluster(2, replicas=2): WITHOUT_NORMS,
    TWELVE: MANY,
    Cluster(2): WITH_NORMS,
}

IN_ANOTHER_ORDER = [
    pytest.param(cluster, name, id=f"{cluster}-{name}")
    for cluster, names in TRAINED.items()
    if cluster != Cluster(2)
    for name in names
]


@functools.cache
def found(mode: str, cluster: Cluster) -> list[Any]:
    """What the workers of a launch print."""
    arguments = [str(cluster.folder), str(cluster.replicas), mode, *TRAINED[cluster]]
    # Many processes on few cores take minutes to begin.
    seconds = 200 + 60 * cluster.workers
    done = launch("tests.equivalence.other_order_run", arguments, cluster.workers, seconds)
    return [worker.answer for worker in done]


def values(mode: str, cluster: Cluster, name: str) -> list[np.ndarray]:
    """Weights and slots of worker 0."""
    found(mode, cluster)
    with np.load(cluster.folder / f"{mode}-{name}.npz") as kept:
        return [kept[key] for key in kept.files]


def assert_same_bits(workers: list[Any]) -> None:
    """All workers have sharded the same training and ended with the same weights and slots."""
    assert {tuple(worker["verdicts"]) for worker in workers} == {("sharded",)}
    assert len({(worker["weights"], worker["state"]) for worker in workers}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "name"), IN_ANOTHER_ORDER)
def test_more_replicas_than_two_are_as_near_as_another_order_of_sums(
    cluster: Cluster, name: str
) -> None:
    plain, otherwise, sharded = (
        values(mode, cluster, name) for mode in ("plain", "packed_otherwise", "sharded")
    )
    moved, apart = farthest(plain, otherwise), farthest(plain, sharded)
    print(f"{cluster}, {name}: another order {moved:.2e}, sharded {apart:.2e}")
    assert 0 < apart <= 4 * moved


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "name"), IN_ANOTHER_ORDER)
def test_all_workers_end_with_the_same_bits(cluster: Cluster, name: str) -> None:
    assert_same_bits([worker[name] for worker in found("sharded", cluster)])


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_NORMS)
def test_norms_that_two_workers_add_up_in_parts_are_near(name: str) -> None:
    plain, sharded = (values(mode, Cluster(2), name) for mode in ("plain", "sharded"))
    apart = farthest(plain, sharded)
    print(f"{name}: sharded {apart:.2e}")
    assert apart <= NORMS_IN_PARTS
    workers = [worker[name] for worker in found("sharded", Cluster(2))]
    assert_same_bits(workers)
    assert all(len(worker["kept"]) >= 4 for worker in workers)


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_twelve_workers_in_the_order_of_their_names_keep_a_twelfth_each(name: str) -> None:
    workers = found("sharded", TWELVE)
    # TensorFlow orders the members of a group by the names of their tasks, as words.
    order = [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
    assert all(worker["order"] == order for worker in workers)
    kept = [workers[number][name]["kept"] for number in order]
    for slot in zip(*kept, strict=True):
        held, (size,) = [own for own, _ in slot], {size for _, size in slot}
        # A twelfth, rounded up to what shards begin at; the last ones have what is left.
        each = -(-size // (12 * LANE)) * LANE
        assert held == [max(0, min(each, size - number * each)) for number in range(12)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_one_worker_restores_the_checkpoint_of_twelve(name: str) -> None:
    of_twelve = found("sharded", TWELVE)[0]
    arguments = [str(TWELVE.folder), "1", "restored", *MANY]
    (alone,) = launch("tests.equivalence.other_order_run", arguments, workers=1, seconds=120)
    assert alone.answer[name]["state"] == of_twelve[name]["state"]
