"""Every optimizer trains the same under a TPUStrategy, its matrices and their slots in shards."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from tests.equivalence.optimizers import RECIPES
from tests.equivalence.own_process import answer_of

# How far a tensor may be apart, relative to its largest element, where a sum over one axis of the
# torus after the other adds in another order. A sum of eight float32 terms then differs by a few
# roundings of 6e-8, and so do weights under optimizers that are linear in it: 2e-7 was measured
# after the six steps. Where an update is divided by the root of squares, a gradient near zero
# multiplies that: up to 2.3e-6 was measured (Adadelta, Nadam). A wrong group or shard is apart by
# the size of a step, 1e-3 and more.
REORDERED = 1e-5

GROUNDS = {
    "4 replicas": (4, None),
    "2 replicas": (2, None),
    "2x4 torus": (8, "v5e:2x4"),
}


@functools.cache
def _run(ground: str) -> dict[str, Any]:
    """What came of every optimizer on a ground, all trained by one process."""
    replicas, topology = GROUNDS[ground]
    job = {"replicas": replicas, "topology": topology, "optimizers": [*RECIPES]}
    found: dict[str, Any] = answer_of("tpu_run", json.dumps(job))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("ground", ["2 replicas", "4 replicas"])
def test_in_one_group_weights_and_slots_are_bit_identical(ground: str, name: str) -> None:
    found = _run(ground)[name]
    assert set(found["apart"]) == {0.0}
    assert found["moved"] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_on_a_torus_they_differ_by_the_order_of_the_sums(name: str) -> None:
    found = _run("2x4 torus")[name]
    assert max(found["apart"]) < REORDERED
    assert found["moved"] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("ground", GROUNDS)
def test_every_matrix_lives_in_shards(ground: str, name: str) -> None:
    found = _run(ground)[name]
    assert found["whole"] == []
    # Two kernels, and the slots of each.
    assert found["in_shards"] == 2 * (1 + RECIPES[name].slots)
    assert found["emitted"]["reduce_scatter"] >= 1
    assert found["emitted"]["all_gather"] >= 1
