"""An owner layout gives one shard everything."""

from __future__ import annotations

import pytest

from tf_wu_shard.layout import OwnerLayout, owner_layout


def test_the_owner_holds_the_variable_in_its_own_shape_and_nobody_else_anything() -> None:
    layout = owner_layout((5, 3), 4, 2)
    assert [layout.bounds(shard) for shard in range(4)] == [(0, 0), (0, 0), (0, 15), (0, 0)]
    assert [layout.shard_shape(r) for r in range(4)] == [(0, 3), (0, 3), (5, 3), (0, 3)]
    assert (layout.size, layout.shard_elements, layout.padding, layout.holders) == (15, 15, 0, (2,))


def test_a_scalar_has_an_owner_too() -> None:
    layout = owner_layout((), 2, 0)
    assert [layout.shard_shape(r) for r in range(2)] == [(), (0,)]


def test_it_names_the_owner() -> None:
    assert str(owner_layout((5, 3), 4, 2)) == "owner replica 2"


def test_another_owner_makes_another_layout() -> None:
    assert owner_layout((5, 3), 4, 2) != owner_layout((5, 3), 4, 1)
    assert owner_layout((5, 3), 4, 2) == OwnerLayout((5, 3), 4, 15, 2)


@pytest.mark.parametrize("owner", [-1, 4])
def test_an_owner_that_is_no_shard_is_an_error(owner: int) -> None:
    with pytest.raises(ValueError, match="none of 4 shards"):
        owner_layout((5, 3), 4, owner)


@pytest.mark.parametrize("shard", [-1, 4])
def test_a_shard_that_does_not_exist_is_an_error(shard: int) -> None:
    with pytest.raises(IndexError, match="of 4"):
        owner_layout((5, 3), 4, 2).bounds(shard)
