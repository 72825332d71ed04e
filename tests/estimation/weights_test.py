"""What is trained is read off a model or a mapping, and what makes no sense is told by its name."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from tf_wu_shard.dtypes import BFLOAT16, FLOAT32
from tf_wu_shard.errors import OptionError
from tf_wu_shard.estimation.weights import number_of, trained_weights


def test_a_mapping_names_shapes_or_shapes_and_types() -> None:
    (w, b), others = trained_weights({"w": (4, 5), "b": ((5,), "bfloat16")}, None)
    assert (w.name, w.shape, w.dtype, w.sparse) == ("w", (4, 5), "float32", False)
    assert (b.shape, b.dtype, b.type_number) == ((5,), "bfloat16", BFLOAT16)
    assert others == () and number_of("float32") == FLOAT32


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "nothing is trained"),
        ({"w": "4x5"}, "w is to be a shape"),
        ({"w": (4, -1)}, "is no shape of a weight"),
        ({"": (4,)}, "is no shape of a weight"),
        ({"w": (4.5,)}, "w is to be a shape"),
        ({"w": ((4,), "int32")}, "a weight of int32 has no gradient"),
        ({"w": ((4,), "float33")}, "w is to be a shape"),
        ([4, 5], "must be a built model of Keras 3, or a mapping"),
    ],
)
def test_what_is_no_weight_is_told(source: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        trained_weights(source, None)


def test_a_model_that_is_not_built_is_told() -> None:
    with pytest.raises(OptionError, match="the model is not built"):
        trained_weights(keras.Sequential([keras.layers.Dense(2)]), None)


def test_an_embeddings_table_has_a_sparse_gradient_and_the_rest_is_not_trained() -> None:
    model = keras.Sequential(
        [keras.layers.Embedding(10, 4), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    )
    model.build((None, 3))
    weights, others = trained_weights(model, None)
    assert [w.sparse for w in weights] == [w.shape == (10, 4) for w in weights]
    assert sorted(shape for shape, _ in others) == [(4,), (4,)]
    named = next(w.name for w in weights if w.shape == (4, 2))
    chosen, _ = trained_weights(model, [named])
    assert [w.name for w in chosen if w.sparse] == [named]


def test_sparse_gradients_need_a_known_weight_that_has_rows() -> None:
    with pytest.raises(OptionError, match="no trained weight is called v"):
        trained_weights({"w": (4,)}, ["v"])
    with pytest.raises(OptionError, match="s has no rows"):
        trained_weights({"s": ()}, ["s"])
