"""Writes down the graphs of a traced train step; imports tf_wu_shard only when told to.

    python tests/equivalence/traced_step.py FILE without|unset|off|on

Run by its path and not as a module of the tests, so that nothing else comes in with it.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.strategies import mirrored_strategy


def main(file: str, mode: str) -> None:
    """Trains one step by `fit` and one by a custom loop and writes all graphs, in order."""
    if mode != "without":
        importlib.import_module("tf_wu_shard")
    if mode in ("off", "on"):
        options = {"weight_update_sharding": mode == "on"}
        tf.config.optimizer.set_experimental_options(options)
    strategy = mirrored_strategy()
    made: list[Any] = []
    own = tf.function

    def recording(*arguments: Any, **named: Any) -> Any:
        made.append(own(*arguments, **named))
        return made[-1]

    tf.function = recording
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((40,)), keras.layers.Dense(40)])
        model.compile(keras.optimizers.AdamW(), keras.losses.MeanSquaredError())
    data = np.ones((8, 40), np.float32)
    model.fit(data, data, batch_size=4, verbose=0)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(data[:2]) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    recording(lambda: strategy.run(step))()
    graphs = [
        concrete.graph.as_graph_def(add_shapes=True)
        for function in made
        for concrete in function._list_all_concrete_functions()
    ]
    assert any(node.op == "AssignSubVariableOp" for graph in graphs for node in graph.node)
    text = "\n".join(str(graph) for graph in graphs)
    pathlib.Path(file).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
