"""Two nets in one step, the second trained through what the first has just become."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.in_process import StrategyOf, both, in_shards

_WIDTH = 16


def test_gradients_left_whole_do_not_wait_for_each_other(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)

    def train() -> list[Any]:
        with strategy.scope():
            judge, maker = (keras.layers.Dense(_WIDTH) for _ in range(2))
            nets = []
            for net in (judge, maker):
                net.build((None, _WIDTH))
                optimizer = keras.optimizers.Adam(0.01)
                optimizer.build(net.trainable_variables)
                nets.append((net, optimizer))

        def step(rows: tf.Tensor) -> None:
            for wanted, (net, optimizer) in enumerate(nets):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((judge(maker(rows)) - wanted) ** 2)
                weights = net.trainable_variables
                optimizer.apply(tape.gradient(loss, weights), weights)

        train_step = tf.function(lambda rows: strategy.run(step, (rows,)))
        rows = np.linspace(-1.0, 1.0, 4 * _WIDTH, dtype=np.float32).reshape(4, _WIDTH)
        for turn in range(3):
            train_step(tf.constant(rows + np.float32(turn)))
        return [
            variable.value
            for net, optimizer in nets
            for variable in (*net.trainable_variables, *optimizer.variables[2:])
        ]

    # The biases are too small to be shared; they were reduced together with the kernels.
    runs = both(train, min_elements=_WIDTH + 1)
    assert runs.apart == []
    matrices = [v for v in runs.variables if len(v.shape) == 2]
    slots = [v for v in matrices if "momentum" in v.name or "velocity" in v.name]
    assert len(slots) == 4 and all(map(in_shards, slots)), str(runs.reports[-1])
