"""The benchmark's model: `depth` square Dense layers and nothing else.

Answers "what does the update of P parameters cost?" with almost no other work in the step: every
layer holds width * width + width weights, all of them dense, all of them trained. It is no model
of anything; its loss means only that training moves.
"""

import keras
import numpy as np


def mlp(width: int = 64, depth: int = 2) -> keras.Model:
    """Returns an uncompiled stack of `depth` Dense layers of `width` units.

    Input and output have shape [batch, width], float32. All layers but the last use relu.
    Parameters: depth * (width * width + width); width 2048 and depth 6 make 25.2 million.
    """
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(depth - 1)]
    return keras.Sequential(
        [keras.layers.Input((width,)), *hidden, keras.layers.Dense(width)], name="mlp"
    )


def mlp_data(examples: int, seed: int = 0, width: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Returns (inputs, targets), both [examples, width] float32: a noisy rotation to learn."""
    random = np.random.default_rng(seed)
    inputs = random.standard_normal((examples, width), dtype=np.float32)
    noise = random.standard_normal((examples, width), dtype=np.float32)
    return inputs, np.roll(inputs, 1, axis=1) + np.float32(0.1) * noise
