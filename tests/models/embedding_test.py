"""Claims about models/embedding.py: the two classifiers differ in their table's gradient alone."""

import pytest
import tensorflow as tf

from tf_wu_shard import models

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def _gradients(name: str) -> list[tf.Tensor | tf.IndexedSlices]:
    model = models.build(name)
    inputs, targets = models.data(name, examples=8)
    with tf.GradientTape() as tape:
        loss = models.loss(name)(targets, model(inputs))
    return tape.gradient(loss, [variable.value for variable in model.trainable_variables])


def test_one_table_has_a_sparse_gradient_and_the_other_a_dense_one() -> None:
    sparse, dense = _gradients("sparse_embedding"), _gradients("dense_embedding")
    assert isinstance(sparse[0], tf.IndexedSlices)
    assert isinstance(dense[0], tf.Tensor)


def test_all_other_gradients_are_dense_and_alike() -> None:
    sparse, dense = _gradients("sparse_embedding"), _gradients("dense_embedding")
    assert all(isinstance(gradient, tf.Tensor) for gradient in sparse[1:])
    assert [one.shape for one in sparse[1:]] == [one.shape for one in dense[1:]]
