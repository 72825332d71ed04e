"""The subset that `make test` takes meets every pair of settings that the matrix meets."""

from __future__ import annotations

import itertools

from tests.equivalence.configurations import (
    LOOPS,
    MODELS,
    REPLICAS,
    all_pairs,
    full_matrix,
    pairwise_cover,
)


def test_every_pair_of_settings_that_can_meet_meets_in_the_cover() -> None:
    matrix = full_matrix()
    cover = pairwise_cover(matrix)
    assert set(cover) <= set(matrix)
    assert all_pairs(cover) == all_pairs(matrix)


def test_the_cover_is_about_as_small_as_a_cover_can_be() -> None:
    matrix = full_matrix()
    least = len({run.optimizer for run in matrix})
    assert least <= len(pairwise_cover(matrix)) <= 1.1 * least


def test_every_model_and_loop_meets_every_number_of_replicas_in_the_cover() -> None:
    cover = pairwise_cover(full_matrix())
    assert {(run.model, run.replicas) for run in cover} == set(itertools.product(MODELS, REPLICAS))
    assert {(run.loop, run.replicas) for run in cover} == set(itertools.product(LOOPS, REPLICAS))


def test_the_cover_is_the_same_every_time() -> None:
    assert pairwise_cover(full_matrix()) == pairwise_cover(full_matrix())
