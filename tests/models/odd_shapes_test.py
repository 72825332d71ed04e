"""Claims about models/odd_shapes.py: nothing in it divides evenly."""

import math

import pytest

from tf_wu_shard import models

# Building a model runs ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def test_no_variable_has_a_size_that_replicas_divide() -> None:
    sizes = [math.prod(one.shape) for one in models.build("odd_shapes").trainable_variables]
    assert all(size % 2 for size in sizes)
    assert min(sizes) < 2


def test_one_variable_is_a_scalar() -> None:
    shapes = [tuple(one.shape) for one in models.build("odd_shapes").trainable_variables]
    assert shapes.count(()) == 1
