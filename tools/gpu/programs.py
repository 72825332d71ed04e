"""The programs that the check trains, and how their data come in another order.

Plain data: nothing of it loads TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """One training by `model.fit`.

    Attributes:
        about: What it stands for.
        model: A name that `tf_wu_shard.models.build` knows.
        shape: Sizes that the model and its data have in common.
        inner: Sizes of the model alone.
        tiny: Of both, what differs where only the check itself is tried.
        optimizer: A name that `tf_wu_shard.bench.optimizers.make` knows.
        batch: Examples a replica and step.
        policy: The dtype policy of its layers.
        short_last_batch: Whether the last batch lacks one example.
        exact_at_two: Whether two replicas must train as unsharded ones, bit for bit: an element's
            update reads that element of two summands alone, and a + b is b + a. Norms are sums
            over shards, and a kernel may add up the entries of a table's rows in blocks, which
            other rows beside them move.
    """

    about: str
    model: str
    shape: Mapping[str, int]
    inner: Mapping[str, int]
    tiny: Mapping[str, int]
    optimizer: str
    batch: int
    policy: str = "float32"
    short_last_batch: bool = False
    exact_at_two: bool = True

    def in_size(self, tiny: bool) -> Program:
        """Returns the program itself, or its small version."""
        if not tiny:
            return self
        return dataclasses.replace(
            self,
            shape={name: self.tiny.get(name, size) for name, size in self.shape.items()},
            inner={name: self.tiny.get(name, size) for name, size in self.inner.items()},
            batch=min(self.batch, 4),
        )

    def examples(self, steps: int, replicas: int) -> int:
        """Returns how many examples that many steps take."""
        return steps * replicas * self.batch - self.short_last_batch


PROGRAMS = {
    "dense": Program(
        about="dense layers, 25.2 million parameters, Adam",
        model="mlp",
        shape={"width": 2048},
        inner={"depth": 6},
        tiny={"width": 64, "depth": 2},
        optimizer="adam",
        batch=64,
    ),
    "mixed_precision": Program(
        about="dense layers in float16, their loss scaled, Adam",
        model="mlp",
        shape={"width": 512},
        inner={"depth": 4},
        tiny={"width": 64, "depth": 2},
        optimizer="adam",
        batch=64,
        policy="mixed_float16",
    ),
    "embedding": Program(
        about="an embedding with sparse gradients, 6.4 million parameters, Adam",
        model="sparse_embedding",
        shape={"vocabulary": 100_000, "length": 32},
        inner={"width": 64},
        tiny={"vocabulary": 200, "length": 8, "width": 16},
        optimizer="adam",
        batch=64,
        exact_at_two=False,
    ),
    "norms": Program(
        about="dense layers, LAMB: a norm of each weight and of each update",
        model="mlp",
        shape={"width": 1024},
        inner={"depth": 3},
        tiny={"width": 64, "depth": 2},
        optimizer="lamb",
        batch=64,
        exact_at_two=False,
    ),
    "short_last_batch": Program(
        about="dense layers, momentum; the last batch lacks an example",
        model="mlp",
        shape={"width": 256},
        inner={"depth": 3},
        tiny={"width": 64, "depth": 2},
        optimizer="momentum",
        batch=32,
        short_last_batch=True,
    ),
}


def reordered(array: np.ndarray, replicas: int, batch: int) -> np.ndarray:
    """Puts examples so that every sum over a step's examples is made in another order.

    All replicas but the first change places, and each adds up its examples from the last to the
    first. The first one keeps its examples, as it is the one whose loss Keras reports. So do all of
    a step that is not full, as what an example counts there depends on its replica.

    Args:
        array: One row an example, in the order they are fed.
        replicas: Number of replicas.
        batch: Examples a replica and step.

    Returns:
        The same rows.
    """
    full = len(array) - len(array) % (replicas * batch)
    by_replica = array[:full].reshape(-1, replicas, batch, *array.shape[1:])
    order = [0, *range(replicas - 1, 0, -1)]
    moved = by_replica[:, order, ::-1].reshape(full, *array.shape[1:])
    return np.concatenate([moved, array[full:]])
