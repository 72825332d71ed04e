"""Claims about models/transformer_sizes.py: bfloat16 products, float32 weights."""

import keras
import pytest

from tf_wu_shard import models

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return models.build("transformer_base", vocabulary=97, length=16, depth=1)


def test_logits_are_bfloat16_and_weights_float32(model: keras.Model) -> None:
    ids, _ = models.data("transformer_base", examples=2, vocabulary=97, length=16)
    assert model(ids).dtype == "bfloat16"
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}


def test_the_small_one_is_base_with_fewer_blocks_and_tokens() -> None:
    model = models.build("transformer_small", length=16)
    # A table and a last normalization, positions, and blocks of attention without biases.
    block = 4 * 512 * 512 + 2 * 512 * 2048 + 512 + 2048 + 4 * 512
    assert model.count_params() == 8192 * 512 + 16 * 512 + 2 * 512 + 2 * block
    ids, _ = models.data("transformer_small", examples=2, length=16)
    assert ids.max() < 8192


def test_every_layer_computes_in_bfloat16(model: keras.Model) -> None:
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    computed = {layer.name: layer.compute_dtype for layer in layers}
    assert {name for name, dtype in computed.items() if dtype != "bfloat16"} == set()
