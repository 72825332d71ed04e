"""Small trainables by name, shared by tests, demo and benchmarks.

    model = models.build("mlp", width=2048, depth=6)
    inputs, targets = models.data("mlp", examples=64, seed=0, width=2048)
    model.compile("adam", models.loss("mlp"))

Models come uncompiled; data are seeded NumPy arrays. Weights are reproducible after
`keras.utils.set_random_seed`. Nothing here knows that updates may be sharded.
"""

from tf_wu_shard.models.registry import build, data, loss, names

__all__ = ["build", "data", "loss", "names"]
