"""Graphs of TensorFlow 1 with a TPU program, and how they are trained on emulated replicas."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard import emulation
from tf_wu_shard.tensorflow_private.tpu_strategy import tpu_topology
from tf_wu_shard.topology import parse_topology

v1 = tf.compat.v1

REPLICAS, BATCH = 4, 8

# 4,096 elements are the smallest that four TPU cores share; 60 rows leave the last shard padding.
INPUTS, OUTPUTS = 60, 130

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "gradient_descent": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1),
}

Step = Callable[..., tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Graph:
    """A graph to train.

    Attributes:
        graph_def: What `as_graph_def` returned.
        losses: For each replica the name of its loss, whose fetching trains.
        variables: Names of all variables.
        saver: The SaverDef of a saver that is part of it.
        meta_graph: The MetaGraphDef that this saver writes beside a checkpoint.
    """

    graph_def: Any
    losses: tuple[str, ...]
    variables: tuple[str, ...]
    saver: Any
    meta_graph: Any


def optimizer_step(make: Callable[[], Any]) -> Callable[[Any, Any], tf.Tensor]:
    """The step of a layer of weights `w` and `b` that a v1 optimizer updates."""

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        shape = [x.shape[1], y.shape[1]]
        w = v1.get_variable("w", shape, use_resource=True, initializer=_random(1))
        b = v1.get_variable("b", shape[1:], use_resource=True, initializer=_random(2))
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
        optimizer = v1.tpu.CrossShardOptimizer(make())
        train = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())
        with tf.control_dependencies([train]):
            return tf.identity(loss)

    return step


def _random(seed: int) -> Any:
    values = np.random.default_rng(seed).standard_normal

    def initial(shape: Sequence[int], dtype: Any = None, **_: Any) -> tf.Tensor:
        return tf.constant(values(tuple(shape), np.float32), dtype)

    return initial


def graph(
    step: Step,
    *also: Callable[[], object],
    replicas: int = REPLICAS,
    sizes: tuple[int, int] = (INPUTS, OUTPUTS),
    **replicate: Any,
) -> Graph:
    """Builds a graph that trains.

    Args:
        step: What a replica does with its examples; returns its loss.
        *also: What to build outside of the program, after it.
        replicas: How many replicas run it.
        sizes: Of an example and of what it is to yield.
        **replicate: What else to give `tpu.replicate`.
    """
    with tf.Graph().as_default() as built:
        places = [
            [
                v1.placeholder(tf.float32, [BATCH, size], name=f"{name}_{replica}")
                for name, size in zip("xy", sizes, strict=True)
            ]
            for replica in range(replicas)
        ]
        losses = v1.tpu.replicate(step, places, **replicate)
        for build in also:
            build()
        variables = v1.global_variables()
        saver = v1.train.Saver(variables)
        v1.variables_initializer(variables, name="init")
        return Graph(
            graph_def=built.as_graph_def(),
            losses=tuple(loss[0].name for loss in losses),
            variables=tuple(variable.op.name for variable in variables),
            saver=saver.as_saver_def(),
            meta_graph=saver.export_meta_graph(),
        )


def assignment(topology: str) -> tf.tpu.experimental.DeviceAssignment:
    """A replica on every device of a slice, in the order of the devices."""
    found = parse_topology(topology)
    cores = np.array(found.coordinates, np.int32).reshape((found.num_devices, 1, 4))
    return tf.tpu.experimental.DeviceAssignment(tpu_topology(found.mesh, found.coordinates), cores)


@dataclasses.dataclass(frozen=True)
class Trained:
    """What came of a training: losses by step and replica, and all variables' values."""

    losses: np.ndarray
    values: dict[str, np.ndarray]


def train(
    made: Graph,
    graph_def: Any,
    *,
    steps: int = 4,
    restore: str = "",
    save: str = "",
    also: Sequence[str] = (),
) -> Trained:
    """Trains a graph on emulated replicas.

    Args:
        made: The graph.
        graph_def: Its GraphDef, or what that was rewritten to.
        steps: How many.
        restore: A checkpoint to begin with, else variables are initialized.
        save: Where to write a checkpoint in the end.
        also: Names of tensors to fetch in the end, beside the variables.
    """
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(emulation.lower_graph_def(graph_def), name="")
        saver = v1.train.Saver(saver_def=made.saver)
    config = v1.ConfigProto(device_count={"CPU": REPLICAS + 1})
    random = np.random.default_rng(5)
    with v1.Session(graph=imported, config=config) as session:
        if restore:
            saver.restore(session, restore)
        else:
            session.run("init")
        losses = []
        for _ in range(steps):
            examples = {
                f"{name}_{replica}:0": random.standard_normal((BATCH, size), np.float32)
                for replica in range(REPLICAS)
                for name, size in (("x", INPUTS), ("y", OUTPUTS))
            }
            losses.append(session.run(made.losses, examples))
        if save:
            saver.save(session, save)
        fetched = {name: f"{name}/Read/ReadVariableOp:0" for name in made.variables}
        fetched |= {name: name for name in also}
        return Trained(np.array(losses), session.run(fetched))
