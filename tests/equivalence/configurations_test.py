"""The subset that `make test` takes meets every pair of settings that the matrix meets."""

from __future__ import annotations

from tests.equivalence.configurations import all_pairs, full_matrix, pairwise_cover


def test_every_pair_of_settings_that_can_meet_meets_in_the_cover() -> None:
    matrix = full_matrix()
    cover = pairwise_cover(matrix)
    assert set(cover) <= set(matrix)
    assert all_pairs(cover) == all_pairs(matrix)


def test_the_cover_is_about_as_small_as_a_cover_can_be() -> None:
    matrix = full_matrix()
    optimizers = {run.optimizer for run in matrix}
    models = {run.model for run in matrix}
    # Every optimizer meets every model, each time in another run.
    least = len(optimizers) * len(models)
    assert least <= len(pairwise_cover(matrix)) <= 1.05 * least


def test_the_cover_is_the_same_every_time() -> None:
    assert pairwise_cover(full_matrix()) == pairwise_cover(full_matrix())
