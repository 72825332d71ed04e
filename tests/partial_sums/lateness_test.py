"""A batch says how late it is beside its first dense tensor, and looks as it did without that."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.lateness import FRESH, HELD, STAND_IN, LateTensor, with_lateness

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def test_a_stand_in_may_be_held_or_not_as_bits_of_one_number() -> None:
    assert (FRESH, HELD, STAND_IN, HELD | STAND_IN) == (0, 1, 2, 3)


def test_the_first_dense_tensor_holds_what_the_batch_says_and_all_others_stay() -> None:
    inputs, labels = tf.ones([3, 2]), tf.range(3)
    marked, same = with_lateness((inputs, labels), [0, 1, 3])
    assert isinstance(marked, LateTensor) and same is labels
    assert marked.value is inputs
    assert marked.late.dtype == tf.int32 and marked.late.numpy().tolist() == [0, 1, 3]


@pytest.mark.parametrize("dtype", [tf.int64, tf.int32, tf.uint8])
def test_numbers_of_any_integer_type_are_taken(dtype: tf.DType) -> None:
    late = with_lateness(tf.ones([2]), tf.constant([0, 2], dtype)).late
    assert late.dtype == tf.int32 and late.numpy().tolist() == [0, 2]


def test_a_batch_of_names_has_them_still() -> None:
    batch = {"b": tf.ones([2]), "a": {"deep": tf.zeros([2]), "none": None}}
    marked = with_lateness(batch, [0, 0])
    assert marked.keys() == batch.keys()
    # By the order of the names, as TensorFlow flattens them.
    assert isinstance(marked["a"]["deep"], LateTensor) and marked["b"] is batch["b"]
    assert marked["a"]["none"] is None


def test_ragged_and_sparse_tensors_are_passed_over() -> None:
    ragged, sparse = tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[0.0], [1.0]])
    first, second, third = with_lateness((ragged, sparse, tf.ones([2])), [0, 0])
    assert first is ragged and second is sparse and isinstance(third, LateTensor)


@pytest.mark.parametrize("batch", [(), None, "no tensor"])
def test_a_batch_without_a_dense_tensor_is_shown(batch: Any) -> None:
    said = f"a batch without a dense tensor cannot say how late it is: {batch}"
    with pytest.raises(WuShardError, match=re.escape(said)):
        with_lateness(batch, [0])


def test_it_has_the_shape_and_the_type_of_the_tensor_inside_before_and_after_it_is_there() -> None:
    numbers = tf.data.Dataset.range(5).map(lambda n: tf.fill([2], tf.cast(n, tf.float16)))
    data = numbers.batch(3).map(lambda batch: with_lateness(batch, tf.zeros(len(batch))))
    spec, first = data.element_spec, next(iter(data))
    assert spec.shape.as_list() == [None, 2] and spec.dtype == tf.float16
    assert first.shape == (3, 2) and first.dtype == tf.float16


def test_each_example_keeps_its_number_however_batches_are_cut() -> None:
    data = tf.data.Dataset.from_tensor_slices(([10.0, 11.0, 12.0, 13.0], [0, 1, 2, 3]))
    data = data.map(with_lateness).batch(4).unbatch().batch(3)
    found = [(one.value.numpy().tolist(), one.late.numpy().tolist()) for one in data]
    assert found == [([10.0, 11.0, 12.0], [0, 1, 2]), ([13.0], [3])]


@pytest.mark.parametrize(
    ("shape", "made"), [([None, 3], (0, 3)), ([None, None, 2], (0, 0, 2)), ([4], (0,))]
)
def test_a_replica_without_examples_gets_an_empty_batch(shape: Any, made: Any) -> None:
    kind: Any = LateTensor.Spec
    spec = kind(tf.TensorSpec(shape, tf.int64), tf.TensorSpec([None], tf.int32))
    empty = spec._create_empty_value()
    assert (empty.value.shape, empty.value.dtype) == (made, tf.int64)
    assert (empty.late.shape, empty.late.dtype) == ((0,), tf.int32)


def test_a_function_takes_it_apart_again() -> None:
    @tf.function(autograph=False)
    def apart(batch: Any) -> Any:
        return batch.value * 2.0, batch.late + 1

    value, late = apart(with_lateness(tf.ones([2]), [0, 2]))
    np.testing.assert_array_equal(value, [2.0, 2.0])
    np.testing.assert_array_equal(late, [1, 3])
