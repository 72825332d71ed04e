"""Claims about models/conv.py: what BatchNorm and Dropout add to a step."""

import numpy as np
import pytest

from tf_wu_shard import models

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def test_the_plain_net_trains_every_variable_it_has() -> None:
    model = models.build("conv")
    assert not model.non_trainable_variables
    assert any(len(variable.shape) == 4 for variable in model.trainable_variables)


def test_batchnorm_brings_statistics_that_no_gradient_trains() -> None:
    model = models.build("conv_batchnorm")
    assert [variable.name for variable in model.non_trainable_variables] == [
        "moving_mean",
        "moving_variance",
    ] * 2


def test_no_convolution_before_a_batchnorm_has_a_bias() -> None:
    model = models.build("conv_batchnorm")
    convolutions = [layer for layer in model.layers if layer.name.startswith("conv")]
    assert [len(layer.weights) for layer in convolutions] == [1, 1]


def test_dropout_is_there_when_asked_for() -> None:
    inputs, _ = models.data("conv_batchnorm", examples=2)
    model = models.build("conv_batchnorm", dropout=0.5)
    still = np.asarray(model(inputs))
    np.testing.assert_array_equal(still, np.asarray(model(inputs)))
    names = [layer.name for layer in models.build("conv_batchnorm").layers]
    assert not any(name.startswith("dropout") for name in names)
    assert any(layer.name.startswith("dropout") for layer in model.layers)


def test_images_of_a_class_resemble_each_other() -> None:
    images, labels = models.data("conv", examples=200, classes=3)
    means = [images[labels == label].mean(axis=0) for label in range(3)]
    within = np.mean([np.abs(images[labels == k] - means[k]).mean() for k in range(3)])
    between = np.abs(means[0] - means[1]).mean()
    assert within < between
