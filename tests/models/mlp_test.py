"""Claims about models/mlp.py: square layers, and nothing but."""

import pytest

from tf_wu_shard import models

# Building a model runs ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


@pytest.mark.parametrize("depth", [1, 3])
def test_it_has_depth_square_layers(depth: int) -> None:
    shapes = [tuple(one.shape) for one in models.build("mlp", width=5, depth=depth).weights]
    assert shapes == [(5, 5), (5,)] * depth


def test_the_last_layer_is_linear_and_the_others_are_not() -> None:
    activations = [layer.activation.__name__ for layer in models.build("mlp", depth=3).layers]
    assert activations == ["relu", "relu", "linear"]
