"""A classifier of handwritten digits and the 1,797 real 8 x 8 images it learns from.

The images ship inside the scikit-learn wheel, so nothing is downloaded at run time. Too few of
them, and too small, for an accuracy claim: enough to watch two runs learn the same.
"""

import keras
import numpy as np

from tf_wu_shard.errors import WuShardError


class DataUnavailableError(WuShardError):
    """Data that a model needs is not installed."""


def digits(filters: int = 16, width: int = 128) -> keras.Model:
    """Returns an uncompiled classifier, [batch, 8, 8, 1] float32 in 0..1 -> [batch, 10] logits.

    Two 3 x 3 convolutions of `filters` and 2 * `filters`, a Dense layer of `width`, the logits.
    """
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(filters, 3, padding="same", activation="relu", name="conv_1"),
            layers.Conv2D(2 * filters, 3, padding="same", activation="relu", name="conv_2"),
            layers.MaxPooling2D(name="pool"),
            layers.Flatten(name="flatten"),
            layers.Dense(width, activation="relu", name="hidden"),
            layers.Dense(10, name="logits"),
        ],
        name="digits",
    )


def digits_data(examples: int = 1797, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns (images [examples, 8, 8, 1] float32 in 0..1, labels [examples] int32), shuffled.

    Args:
        examples: how many, at most the 1,797 there are.
        seed: of the shuffle.

    Raises:
        DataUnavailableError: scikit-learn is not installed, or more images are asked for.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataUnavailableError(
            "the digits images ship with scikit-learn, which is not installed:"
            " pip install 'tf-wu-shard[demo]'"
        ) from error
    images, labels = load_digits(return_X_y=True)
    if not 0 < examples <= len(images):
        raise DataUnavailableError(
            f"digits_data: asked for {examples} examples; ask for 1 to {len(images)}"
        )
    chosen = np.random.default_rng(seed).permutation(len(images))[:examples]
    pixels = (images[chosen] / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    return pixels, labels[chosen].astype(np.int32)
