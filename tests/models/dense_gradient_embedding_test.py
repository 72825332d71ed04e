"""Claims about models/dense_gradient_embedding.py: one table, read both ways."""

import numpy as np
import pytest

from tf_wu_shard.models.dense_gradient_embedding import DenseGradientEmbedding

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

_IDS = np.array([[4, 0], [2, 4]], np.int32)


def test_ids_become_rows_of_the_table() -> None:
    embedding = DenseGradientEmbedding(vocabulary=5, width=3)
    rows = np.asarray(embedding(_IDS))
    np.testing.assert_array_equal(rows, embedding.table.numpy()[_IDS])


def test_an_id_outside_the_vocabulary_gives_zeros() -> None:
    embedding = DenseGradientEmbedding(vocabulary=5, width=3)
    np.testing.assert_array_equal(np.asarray(embedding(np.array([5]))), np.zeros((1, 3)))


def test_reversed_it_scores_every_row() -> None:
    embedding = DenseGradientEmbedding(vocabulary=5, width=3)
    hidden = np.asarray(embedding(_IDS))
    logits = np.asarray(embedding(hidden, reverse=True))
    assert logits.shape == (2, 2, 5)
    # Three products a score: float32 rounding of numbers near one.
    np.testing.assert_allclose(logits, hidden @ embedding.table.numpy().T, rtol=0, atol=1e-6)


def test_a_copy_from_its_configuration_has_the_same_arguments() -> None:
    embedding = DenseGradientEmbedding(5, 3, name="words", dtype="mixed_bfloat16")
    copy = DenseGradientEmbedding.from_config(embedding.get_config())
    assert (copy.vocabulary, copy.width, copy.name) == (5, 3, "words")
    assert copy.dtype_policy.name == "mixed_bfloat16"
