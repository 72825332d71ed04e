"""A token embedding whose gradient is a dense tensor.

Keras' own Embedding looks up with a gather, whose gradient is sparse (IndexedSlices). This layer
looks up with a matrix product of one-hot rows, so its table's gradient is one dense tensor, as in
models for accelerators that have matrix units and no fast scatter. Price: the one-hot rows,
[tokens, vocabulary] floats, exist during the step.
"""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tf_wu_shard")
class DenseGradientEmbedding(keras.layers.Layer):
    """Maps token ids to rows of a [vocabulary, width] table; reversed, hidden states to logits."""

    table: keras.Variable

    def __init__(
        self, vocabulary: int, width: int, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.vocabulary = vocabulary
        self.width = width

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Makes the table, float32. Its scale keeps tied logits of a normalised state near 1."""
        self.table = self.add_weight(
            shape=(self.vocabulary, self.width),
            initializer=keras.initializers.RandomNormal(stddev=self.width**-0.5),
            name="table",
        )

    def call(self, inputs: tf.Tensor, reverse: bool = False) -> tf.Tensor:
        """Looks up, or scores.

        Args:
            inputs: ids [...] of an integer dtype below vocabulary (an id outside gives zeros);
                with `reverse`, hidden states [..., width].
            reverse: score hidden states against every row of the table instead.

        Returns:
            Rows [..., width]; with `reverse`, logits [..., vocabulary]. Both, as the hidden
            states, have the dtype that the layer computes in.
        """
        table = tf.convert_to_tensor(self.table)
        if reverse:
            return tf.matmul(inputs, table, transpose_b=True)
        return tf.matmul(tf.one_hot(inputs, self.vocabulary, dtype=table.dtype), table)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "vocabulary": self.vocabulary,
            "width": self.width,
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
        }
