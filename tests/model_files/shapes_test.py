"""A shape out of a file is known where a tensor can have it."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.model_files.shapes import MAX_RANK, dims_of, shape_of


def proto(*sizes: int, unknown: bool = False) -> Any:
    made = tf.TensorShape([]).as_proto()
    made.unknown_rank = unknown
    for size in sizes:
        made.dim.add(size=size)
    return made


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 5), (2**31, 2**31)])
def test_a_whole_shape_is_itself(shape: tuple[int, ...]) -> None:
    assert dims_of(proto(*shape)) == shape_of(proto(*shape)) == shape


def test_an_open_dimension_leaves_the_shape_open() -> None:
    assert dims_of(proto(-1, 8)) == (None, 8)
    assert shape_of(proto(-1, 8)) is None
    assert dims_of(proto(unknown=True)) is shape_of(proto(unknown=True)) is None


def test_what_no_tensor_has_is_not_known() -> None:
    assert dims_of(proto(2**32, 2**32)) is None
    assert dims_of(proto(*[1] * MAX_RANK)) == (1,) * MAX_RANK
    assert dims_of(proto(*[1] * (MAX_RANK + 1))) is shape_of(proto(*[1] * (MAX_RANK + 1))) is None
