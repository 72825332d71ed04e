"""Bag-of-tokens classifiers: one whose embedding has a dense gradient, one with a sparse one.

Together they answer "does one sparse gradient stop the others?": the two differ in the lookup
alone, so what is sharded in the first and not in the second is due to that lookup.
"""

import keras
import numpy as np

from tf_wu_shard.models.dense_gradient_embedding import DenseGradientEmbedding


def dense_embedding(
    vocabulary: int = 101, length: int = 12, width: int = 16, classes: int = 5
) -> keras.Model:
    """Returns an uncompiled classifier, [batch, length] int32 ids -> [batch, classes] logits.

    The gradient of its [vocabulary, width] table is a dense tensor.
    """
    return _classifier(
        DenseGradientEmbedding(vocabulary, width), length, classes, "dense_embedding"
    )


def sparse_embedding(
    vocabulary: int = 101, length: int = 12, width: int = 16, classes: int = 5
) -> keras.Model:
    """Returns an uncompiled classifier, [batch, length] int32 ids -> [batch, classes] logits.

    The gradient of its [vocabulary, width] table is sparse (IndexedSlices).
    """
    return _classifier(
        keras.layers.Embedding(vocabulary, width), length, classes, "sparse_embedding"
    )


def tokens_data(
    examples: int, seed: int = 0, vocabulary: int = 101, length: int = 12, classes: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (ids [examples, length] int32 below vocabulary, labels [examples] int32).

    The label is the first token's id modulo `classes`, so the embedding has something to learn.
    """
    ids = np.random.default_rng(seed).integers(0, vocabulary, (examples, length), dtype=np.int32)
    return ids, ids[:, 0] % np.int32(classes)


def _classifier(embedding: keras.layers.Layer, length: int, classes: int, name: str) -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((length,), dtype="int32"),
            embedding,
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(classes),
        ],
        name=name,
    )
