"""The pass's work grows with the graph, not with its square: counted in calls, as time is noisy."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import tensorflow as tf

import tf_wu_shard
from tests.selection import cases
from tf_wu_shard.config import FLAG, ShardingOptions
from tf_wu_shard.emulation import emulated_tpu_strategy

_OURS = os.path.dirname(tf_wu_shard.__file__) + os.sep
Optimizer = Callable[[], Any]


@pytest.fixture(autouse=True)
def flag() -> Iterator[None]:
    tf_wu_shard.clear_reports()
    tf.config.optimizer.set_experimental_options({FLAG: ShardingOptions(min_elements=1)})
    yield
    tf.config.optimizer.set_experimental_options({FLAG: False})


def calls_of_the_pass(
    strategy: tf.distribute.Strategy, optimizer: Optimizer, layers: int, branches: bool = False
) -> int:
    """Calls that the package makes while a step that trains `layers` dense layers is traced.

    With `branches`, each layer scales its results by a number that a branch of it initialises.
    """
    with strategy.scope():
        kernels = [tf.Variable(tf.ones((128, 128)), name=f"kernel_{i}") for i in range(layers)]
        scales = [tf.Variable(tf.ones((128,))) for _ in range(layers)] if branches else []
        made = optimizer()
        made.build([*kernels, *scales])

    def initialised(x: tf.Tensor, scale: tf.Variable) -> tf.Tensor:
        def by_batch() -> tf.Tensor:
            return scale.assign(scale / (1.0 + tf.math.reduce_std(x, 0)))

        return tf.cond(tf.reduce_sum(scale) > 1e3, by_batch, lambda: scale + 0.0)

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                x = tf.ones((4, 128))
                for kernel, *scale in zip(kernels, *([scales] if branches else []), strict=True):
                    x = x @ kernel
                    x = tf.tanh(x * initialised(x, *scale) if branches else x)
                loss = tf.reduce_mean(x)
            trained = [*kernels, *scales]
            made.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))
            return loss

        return strategy.run(replica)

    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(_OURS):
            calls += 1

    sys.setprofile(count)
    try:
        step.get_concrete_function()
    finally:
        sys.setprofile(None)
    (report,) = tf_wu_shard.reports()
    assert len(report.variables) == layers, [a.reason for a in report.left_alone][:2]
    tf_wu_shard.clear_reports()
    return calls


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": lambda: tf.keras.optimizers.AdamW(0.1, weight_decay=0.01),
    "lamb": lambda: tf.keras.optimizers.Lamb(0.1),
}


@pytest.mark.parametrize(
    ("where", "optimizer"),
    cases(
        itertools.product(["in_process", "tpus"], OPTIMIZERS),
        {("in_process", "adamw"), ("tpus", "lamb")},
    ),
)
def test_twice_the_layers_are_twice_the_work(
    strategy_of: Callable[[int], tf.distribute.Strategy], where: str, optimizer: str
) -> None:
    strategy = strategy_of(4) if where == "in_process" else emulated_tpu_strategy(4)
    once, twice = (calls_of_the_pass(strategy, OPTIMIZERS[optimizer], layers) for layers in (8, 16))
    # What does not grow with the layers makes it less than two; a walk over all of the graph for
    # each op, or each variable, would make it three or four.
    assert 1.5 < twice / once < 2.1, (once, twice)


def test_twice_the_branches_are_twice_the_work(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    """Each is written out, or looked at for that, by changes next to it alone."""
    sgd: Optimizer = lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9)  # noqa: E731
    strategy = strategy_of(2)
    once, twice = (calls_of_the_pass(strategy, sgd, layers, branches=True) for layers in (6, 12))
    # What each scale is in the end is followed through the layers behind it: a tenth is of their
    # number's square.
    assert 1.5 < twice / once < 2.4, (once, twice)
