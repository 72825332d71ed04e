"""Open dimensions: what two statements say together, what NumPy's rules make of two shapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tf_wu_shard.graph.dimensions import Dims, broadcast, merged, product


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (None, None, None),
        (None, (2, None), (2, None)),
        ((2, None), None, (2, None)),
        ((2, None), (None, 3), (2, 3)),
        ((), (), ()),
        # The graph's own statement stands first, and is believed.
        ((2, 3), (4, 3), (2, 3)),
        ((2, None), (2, 3, 4), (2, None)),
    ],
)
def test_two_statements_add_up(first: Dims | None, second: Dims | None, both: Dims | None) -> None:
    assert merged(first, second) == both


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((2, 1, 3), (5, 1)),
        ((), (4,)),
        ((1,), (1,)),
        ((0, 3), (1, 3)),
        ((1, 4), (0, 1, 1)),
        ((), ()),
    ],
)
def test_operands_broadcast_as_numpys_do_however_much_is_open(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    whole = np.broadcast_shapes(first, second)
    assert broadcast(first, second) == broadcast(second, first) == whole
    for a, b in itertools.product(_opened(first), _opened(second)):
        found = broadcast(a, b)
        assert found is not None and len(found) == len(whole)
        assert all(f in (None, w) for f, w in zip(found, whole, strict=True)), (a, b)
    assert broadcast(first, None) is broadcast(None, second) is None


def _opened(dims: tuple[int, ...]) -> list[Dims]:
    """A shape with each choice of its dimensions open."""
    return list(itertools.product(*((d, None) for d in dims)))


@pytest.mark.parametrize(
    ("dims", "size"),
    [(None, None), ((), 1), ((2, 3), 6), ((2, None), None), ((None, 0), 0), ((0,), 0)],
)
def test_the_size_of_an_open_shape_is_known_where_nothing_is_left_to_say(
    dims: Dims | None, size: int | None
) -> None:
    assert product(dims) == size
