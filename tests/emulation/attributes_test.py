"""An attribute is of the kind that it is called after."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_wu_shard.emulation import attributes


def test_single_values_are_read_back() -> None:
    assert attributes.dtype(3).type == 3 and attributes.integer(-1).i == -1
    assert attributes.flag(True).b and attributes.flag(False).HasField("b")
    assert attributes.function("f").func.name == "f"


def test_lists_keep_their_order_and_may_be_empty() -> None:
    assert [f.name for f in attributes.functions(["b", "a"]).list.func] == ["b", "a"]
    assert list(attributes.dtypes([3, 1]).list.type) == [3, 1]
    assert list(attributes.dtypes([]).list.type) == []


def test_a_constant_keeps_its_type_and_shape() -> None:
    value = np.arange(6, dtype=np.int32).reshape(2, 3)
    read = tf.make_ndarray(attributes.tensor(value).tensor)
    assert read.dtype == np.int32 and (read == value).all()


def test_a_list_is_repeated_and_the_first_stays_as_it_was() -> None:
    types = attributes.dtypes([1, 3])
    assert list(attributes.repeated(types, 3).list.type) == [1, 3] * 3
    assert list(attributes.repeated(types, 0).list.type) == []
    assert list(types.list.type) == [1, 3]
