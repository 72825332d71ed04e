"""One training run in a process of its own: plain `model.fit` under the strategy of its task.

A process can hold one run only: logical devices are fixed once TensorFlow has touched them, and
several MirroredStrategy fits in one process may fail. Progress goes to standard output, one JSON
object a line; the results go into a folder (runs.py).
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import sys
from collections.abc import Sequence

import keras
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard.config import FLAG
from tf_wu_shard.demo import runs
from tf_wu_shard.demo.recording import Steps, say, sharding, values
from tf_wu_shard.demo.runs import Mode, Run, Tensors
from tf_wu_shard.demo.tasks import SEED, Task, task
from tf_wu_shard.topology import parse_topology, topology_names


def train(name: str, mode: Mode, *, replicas: int, quick: bool) -> tuple[Run, Tensors]:
    """Trains a task on `replicas` logical CPU devices; must come before any other TensorFlow work.

    Args:
        name: Of the task, as in `runs.TITLES`.
        mode: How the run updates its weights.
        replicas: Number of logical CPU devices.
        quick: Whether to take the small version of the task.

    Returns:
        The run and its final tensors.
    """
    strategy = _tpu_strategy(replicas) if name in runs.ON_TPUS else _strategy(mode, replicas)
    if mode is Mode.SHARDED:
        tf.config.optimizer.set_experimental_options({FLAG: True})
    # After the devices are set: making the task's data already runs TensorFlow ops.
    chosen = task(name, quick)
    keras.utils.set_random_seed(SEED)
    with strategy.scope():
        model = chosen.model()
        model.compile(chosen.optimizer(), chosen.loss())
    say({"steps": chosen.steps, "parameters": model.count_params()})
    steps = _fit(model, chosen, mode, replicas)
    run = Run(
        mode=mode,
        parameters=model.count_params(),
        losses=tuple(steps.losses),
        step_s=tuple(steps.seconds[1:]),
        first_step_s=steps.seconds[0],
        held_out=chosen.held_out_score(model),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        sharding=sharding(),
    )
    return run, Tensors(values(model.weights), values(model.optimizer.variables))


def main(argv: Sequence[str] | None = None) -> int:
    """Trains as the arguments say and writes the run into the folder; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tf_wu_shard.demo.worker", description=__doc__)
    parser.add_argument("--task", choices=sorted(runs.TITLES), required=True)
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], required=True)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    args = parser.parse_args(argv)
    run, tensors = train(args.task, Mode(args.mode), replicas=args.replicas, quick=args.quick)
    runs.save(args.folder, run, tensors)
    return 0


def _strategy(mode: Mode, replicas: int) -> tf.distribute.Strategy:
    """Makes the devices and the strategy."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    return tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(replicas)],
        tf.distribute.ReductionToOneDevice() if mode is Mode.REORDERED else None,
    )


def _tpu_strategy(replicas: int) -> tf.distribute.TPUStrategy:
    """Cores of a slice of that many chips; where there is none, of no known topology."""
    fitting = (n for n in topology_names() if parse_topology(n).num_devices == replicas)
    topology = next((name for name in fitting if name.startswith("v5e:")), None)
    return tf_wu_shard.emulation.emulated_tpu_strategy(replicas, topology)


def _fit(model: keras.Model, chosen: Task, mode: Mode, replicas: int) -> Steps:
    elsewhere = chosen.name in runs.ON_TPUS and mode is Mode.REORDERED
    inputs, targets = chosen.training(replicas, in_other_places=elsewhere)
    steps = Steps()
    model.fit(
        inputs,
        targets,
        batch_size=chosen.batch * replicas,
        shuffle=False,
        verbose=0,
        callbacks=[steps],
    )
    return steps


if __name__ == "__main__":
    sys.exit(main())
