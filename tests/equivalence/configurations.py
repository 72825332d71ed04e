"""Which training runs the equivalence matrix is made of, and the subset that `make test` takes.

Answers: the full product, and a subset of it in which every two settings that can meet and have
to do with each other do meet.
Imports no TensorFlow: a list of runs costs nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence

KERAS = (
    *("sgd", "momentum", "nesterov", "adam", "amsgrad", "adamw", "adamax", "nadam", "rmsprop"),
    *("centered_rmsprop", "adagrad", "adadelta", "ftrl", "lion", "sgd_weight_decay"),
    *("momentum_clipnorm", "adam_clipvalue", "adam_global_clipnorm", "lion_weight_decay"),
    *("adam_schedule", "nesterov_cond_schedule"),
)
FUSED = (
    *("v1_gradient_descent", "v1_momentum", "v1_nesterov", "v1_adam", "v1_rmsprop"),
    *("v1_centered_rmsprop", "v1_adagrad", "v1_adadelta", "v1_ftrl", "v1_proximal_adagrad"),
    *("v1_proximal_gradient_descent", "v1_adagrad_da"),
)
LOOPS = ("fit", "replica_function", "traced_replica_function")
MODELS = ("dense", "conv", "dense_embedding", "conv_batchnorm")
REPLICAS = (2, 4, 8)
MIN_ELEMENTS = (1, None)

Pair = tuple[tuple[str, object], ...]


@dataclasses.dataclass(frozen=True)
class Configuration:
    """One training run.

    Attributes:
        optimizer: A name of optimizers.py.
        loop: "fit", or a custom loop that hands `strategy.run` a Python or a traced function.
        model: "dense", or a model's name in the registry.
        replicas: How many.
        min_elements: As in `tf_wu_shard.ShardingOptions`.
    """

    optimizer: str
    loop: str
    model: str
    replicas: int
    min_elements: int | None

    @property
    def name(self) -> str:
        """The settings in one word, fit for a file name."""
        smallest = "default" if self.min_elements is None else self.min_elements
        return f"{self.optimizer}-{self.loop}-{self.model}-{self.replicas}-{smallest}"

    @property
    def pairs(self) -> set[Pair]:
        """Every two settings that meet in this run and have to do with each other.

        An update is the same ops whatever its gradient comes from and however it is summed, so the
        optimizer is there by itself.
        """
        optimizer, *others = dataclasses.asdict(self).items()
        return {(optimizer,), *itertools.combinations(others, 2)}


def full_matrix() -> tuple[Configuration, ...]:
    """Every configuration: Keras's optimizers in all loops, fused ones in the custom loops."""
    products = itertools.chain(
        itertools.product(KERAS, LOOPS, MODELS, REPLICAS, MIN_ELEMENTS),
        # Keras's `fit` takes Keras optimizers only.
        itertools.product(FUSED, LOOPS[1:], MODELS, REPLICAS, MIN_ELEMENTS),
    )
    return tuple(Configuration(*settings) for settings in products)


def all_pairs(configurations: Iterable[Configuration]) -> set[Pair]:
    """Every two such settings that meet in some of the configurations."""
    return set().union(*(one.pairs for one in configurations))


def pairwise_cover(matrix: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """A small part of `matrix` in which the same pairs meet; the same part every time.

    Greedy: the run in which most pairs meet for the first time, first among the runs of one
    optimizer after the other, and then among all. Among equals it takes turns between models and
    numbers of replicas, fewer replicas more often, as their graphs are traced faster.
    """
    missing = all_pairs(matrix)
    chosen: list[Configuration] = []
    turns: collections.Counter[tuple[str, int]] = collections.Counter()

    def take(runs: Sequence[Configuration]) -> None:
        best = max(
            runs,
            key=lambda one: (
                len(one.pairs & missing),
                -turns[one.model, one.replicas] - one.replicas,
            ),
        )
        turns[best.model, best.replicas] += 1
        chosen.append(best)
        missing.difference_update(best.pairs)

    for _, group in itertools.groupby(matrix, key=lambda one: one.optimizer):
        take(list(group))
    while missing:
        take(matrix)
    return tuple(chosen)
