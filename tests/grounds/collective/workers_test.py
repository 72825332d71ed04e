"""Workers of one replica or of several do what the verbs say, each its half of an exchange."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.grounds.collective.collectives_test import group_of
from tests.grounds.dialect_test import contributions, devices_of, run, same
from tests.nccl.lowering import runnable
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.collective import collectives
from tf_wu_shard.grounds.collective.group import Member
from tf_wu_shard.grounds.collective.workers import WorkerCollectives
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.replicas import of_workers

pytestmark = pytest.mark.usefixtures("logical_cpus")

SHAPES = [[(5, 29)], [(40,), (), (3, 7)]]

# How many workers, and how many replicas each has.
CLUSTERS = [(2, 1), (2, 2), (2, 4), (3, 2)]

# What one worker emits, given what its replicas have: `values[t][copy]`.
Half = Callable[[WorkerCollectives, Emitter, list[list[Value]]], Sequence[Sequence[Value]]]


def emitted(
    cluster: tuple[int, int], operands: list[list[np.ndarray]], half: Half
) -> tuple[list[list[np.ndarray]], list[Any]]:
    """What all workers make of operands, `operands[t][replica]`; `results[t][replica]`, and nodes.

    The replicas of a worker are neighbours among the logical devices.
    """
    workers, each = cluster
    devices = devices_of(workers * each)

    def of_all(at: Emitter, values: list[list[Value]]) -> list[list[Value]]:
        # The first replicas of each worker have a group, the second ones, ...
        places: list[tuple[Member, ...]] = []
        for place in range(each):
            places.append(
                group_of(at, workers, [devices[w * each + place] for w in range(workers)])
            )
        results: list[list[Value]] = []
        for worker in range(workers):
            copies = range(worker * each, (worker + 1) * each)
            own = of_workers([devices[copy] for copy in copies], workers * each)
            made = WorkerCollectives(own, lambda rank=worker: rank)  # type: ignore[misc]
            made._group = tuple(members[worker] for members in places)
            found = half(made, at, [[tensor[copy] for copy in copies] for tensor in values])
            results = [[*r, *f] for r, f in zip(results or [[] for _ in found], found, strict=True)]
        return results

    return run(operands, of_all, runnable)


def by_worker(cluster: tuple[int, int], terms: Sequence[np.ndarray]) -> np.ndarray:
    """The sum, of each worker's replicas in order, and then of the workers in order."""
    workers, each = cluster

    def in_order(some: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(list(itertools.accumulate(some))[-1])

    return in_order([in_order(terms[w * each : (w + 1) * each]) for w in range(workers)])


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_reduce_scatter_gives_each_replica_its_shard_and_sums_within_a_worker_first(
    shapes: list[tuple[int, ...]], cluster: tuple[int, int]
) -> None:
    workers, each = cluster
    layouts = [flat_layout(shape, workers * each, 4) for shape in shapes]
    operands = contributions(shapes, workers * each)
    found, nodes = emitted(
        cluster, operands, lambda made, at, values: made.reduce_scatter(at, values, layouts)
    )
    for layout, terms, own in zip(layouts, operands, found, strict=True):
        total = by_worker(cluster, terms).reshape(-1)
        for replica, shard in enumerate(own):
            assert same(shard, total[slice(*layout.bounds(replica))])
    # What the replicas of a worker have to say to another worker they say once.
    sizes = [node for node in nodes if node.op == "CollectiveAllToAllV2"]
    assert len(sizes) == workers * each


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_all_gather_gives_every_replica_the_whole_tensors(
    shapes: list[tuple[int, ...]], cluster: tuple[int, int]
) -> None:
    count = cluster[0] * cluster[1]
    layouts = [flat_layout(shape, count, 4) for shape in shapes]
    tensors = [own[0] for own in contributions(shapes, 1)]
    shards = [
        [t.reshape(-1)[slice(*layout.bounds(r))] for r in range(count)]
        for t, layout in zip(tensors, layouts, strict=True)
    ]
    whole, _ = emitted(
        cluster, shards, lambda made, at, values: made.all_gather(at, values, layouts)
    )
    for tensor, own in zip(tensors, whole, strict=True):
        assert len(own) == count and all(same(gathered, tensor) for gathered in own)


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
@pytest.mark.parametrize("limit", [0, 10**6], ids=["cut", "gathered"])
def test_all_reduce_gives_every_replica_the_sums(
    cluster: tuple[int, int], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives, "_GATHERED_BYTES", limit)
    operands = contributions([(3, 5), (17,)], cluster[0] * cluster[1])
    found, _ = emitted(
        cluster, operands, lambda made, at, values: made.all_reduce(at, values, [(3, 5), (17,)])
    )
    for terms, own in zip(operands, found, strict=True):
        assert all(same(total, by_worker(cluster, terms)) for total in own)


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_all_reduce_takes_the_largest_elements(cluster: tuple[int, int]) -> None:
    operands = contributions([(3, 5)], cluster[0] * cluster[1])
    found, _ = emitted(
        cluster,
        operands,
        lambda made, at, values: made.all_reduce(at, values, [(3, 5)], Combine.MAX),
    )
    assert all(same(own, np.max(np.stack(operands[0]), 0)) for own in found[0])


def test_what_has_no_elements_travels_with_others_only() -> None:
    shapes: list[tuple[int, ...]] = [(0,), (3, 0, 2), (5,)]
    for some, travels in ((shapes[:2], 0), (shapes, 2)):
        operands = contributions(some, 2)

        def summed(
            made: WorkerCollectives, at: Emitter, values: Any, some: Any = some
        ) -> list[list[Value]]:
            return made.all_reduce(at, values, some)

        found, nodes = emitted((2, 1), operands, summed)
        for terms, own in zip(operands, found, strict=True):
            assert all(same(total, by_worker((2, 1), terms)) for total in own)
        assert sum(node.op.startswith("Collective") for node in nodes) == travels


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_what_has_no_known_size_is_summed_whole(cluster: tuple[int, int]) -> None:
    operands = contributions([(48,)], cluster[0] * cluster[1])
    found, nodes = emitted(
        cluster, operands, lambda made, at, values: made.all_reduce(at, values, [(-1,)])
    )
    # TensorFlow's ring adds up in an order of its own, terms of size about 1.
    for own in found[0]:
        np.testing.assert_allclose(own, by_worker(cluster, operands[0]), rtol=0, atol=1e-5)
    assert sum(node.op == "CollectiveReduceV2" for node in nodes) == cluster[0]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
@pytest.mark.parametrize(
    "dtype", [np.float32, tf.bfloat16.as_numpy_dtype, np.complex128, np.int64, np.bool_]
)
@pytest.mark.parametrize("lengths", [(3, 0, 5, 1, 3, 2, 0, 4), (0,) * 8], ids=["some", "none"])
def test_lists_of_any_lengths_stand_one_after_the_other_on_every_replica(
    cluster: tuple[int, int], dtype: Any, lengths: tuple[int, ...]
) -> None:
    count, random = cluster[0] * cluster[1], np.random.default_rng(4)
    lengths = lengths[:count]
    rows = [random.integers(0, 50, n).astype(np.int32) for n in lengths]
    values = [(10 * random.standard_normal((n, 2, 3))).astype(dtype) for n in lengths]

    def half(
        made: WorkerCollectives, at: Emitter, own: list[list[Value]]
    ) -> Sequence[Sequence[Value]]:
        found = made.gather_entries(at, {"rows": own[0], "values": own[1]})
        return [found["rows"], found["values"]]

    found, nodes = emitted(cluster, [rows, values], half)
    for parts, own in zip((rows, values), found, strict=True):
        whole = np.concatenate(parts)
        assert all(one.tobytes() == whole.tobytes() and one.shape == whole.shape for one in own)
    # How many there are is asked once, whatever is known of each.
    assert sum(node.op == "CollectiveGatherV2" for node in nodes) == 3 * cluster[0]
