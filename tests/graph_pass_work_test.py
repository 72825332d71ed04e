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


def calls_of_the_pass(strategy: tf.distribute.Strategy, optimizer: Optimizer, layers: int) -> int:
    """Calls that the package makes while a step that trains `layers` dense layers is traced."""
    with strategy.scope():
        kernels = [tf.Variable(tf.ones((128, 128)), name=f"kernel_{i}") for i in range(layers)]
        made = optimizer()
        made.build(kernels)

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                x = tf.ones((4, 128))
                for kernel in kernels:
                    x = tf.tanh(x @ kernel)
                loss = tf.reduce_mean(x)
            made.apply_gradients(zip(tape.gradient(loss, kernels), kernels, strict=True))
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
