"""Replicas are grouped along the axes of the box that their places form."""

from __future__ import annotations

import itertools
import random

import pytest

from tf_wu_shard.grounds.tpu.torus import Torus, one_group, torus_of


def box(*sizes: int) -> list[tuple[int, ...]]:
    """All places of a box, the first axis slowest."""
    return list(itertools.product(*(range(size) for size in sizes)))


def test_the_groups_of_an_axis_differ_along_it_alone() -> None:
    torus = torus_of([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)])
    assert torus.axes == (((0, 3), (1, 4), (2, 5)), ((0, 1, 2), (3, 4, 5)))
    assert torus.held == (0, 1, 2, 3, 4, 5)


def test_the_groups_follow_the_places_not_the_numbers() -> None:
    torus = torus_of([(1, 0), (0, 0), (0, 1), (1, 1)])
    assert torus.axes == (((1, 0), (2, 3)), ((0, 3), (1, 2)))
    assert torus.held == (2, 0, 1, 3)


def test_axes_of_one_place_are_left_out() -> None:
    torus = torus_of([(0, row, 0, 0) for row in range(4)])
    assert torus == one_group(4)


def test_places_need_not_begin_at_zero_or_be_next_to_each_other() -> None:
    torus = torus_of([(4, 8), (4, 2), (6, 8), (6, 2)])
    assert torus.axes == (((0, 2), (1, 3)), ((1, 0), (3, 2)))
    assert torus.held == (1, 0, 3, 2)


@pytest.mark.parametrize(
    "places",
    [[(0, 0), (0, 1), (1, 0)], [(0, 0), (0, 0)], [(0, 0), (1, 1)], [(3, 3)]],
    ids=["a hole", "one place twice", "a diagonal", "one replica"],
)
def test_places_that_form_no_box_are_one_group(places: list[tuple[int, ...]]) -> None:
    assert torus_of(places) == one_group(len(places))


@pytest.mark.parametrize(
    ("torus", "place"),
    [
        (one_group(4), "topology not known: one group of all replicas"),
        (
            torus_of(box(1, 4, 2, 1)),
            "a 4x2 torus: collectives along one axis at a time, in groups of 4, then of 2",
        ),
        (torus_of(box(1, 4)), "a row of 4 replicas: one group of all"),
        (torus_of([(0, 0), (1, 1)]), "the replicas' places form no box: one group of all replicas"),
        (torus_of([(3, 3)]), "a single replica: one group of all replicas"),
    ],
)
def test_a_torus_says_what_is_known_of_it(torus: Torus, place: str) -> None:
    assert torus.place == place


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2, 3), (2, 2, 1, 2), (1, 5)], ids=str)
def test_scattering_along_each_axis_leaves_each_replica_the_shard_it_is_said_to_hold(
    sizes: tuple[int, ...],
) -> None:
    places = box(*sizes)
    random.Random(3).shuffle(places)
    torus = torus_of(places)
    runs = {replica: list(range(len(places))) for replica in range(len(places))}
    for groups in torus.axes:
        assert sorted(itertools.chain(*groups)) == sorted(runs)
        for group in groups:
            for number, replica in enumerate(group):
                share = len(runs[replica]) // len(group)
                runs[replica] = runs[replica][number * share : (number + 1) * share]
    assert [runs[replica] for replica in range(len(places))] == [[h] for h in torus.held]
