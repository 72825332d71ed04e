"""One launch, in a process of its own: `python -m tools.gpu.launch_run JOB`.

JOB is JSON, as `launches.job_of` makes it. The process leaves `facts.json` in the job's folder and,
where results are compared, `weights.npz` and `slots.npz`. On standard output it says what it is at,
one line of JSON at a time, so that one that hangs can be told where.
"""

from __future__ import annotations

import collections
import faulthandler
import hashlib
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import models
from tf_wu_shard.bench import optimizers, training
from tf_wu_shard.demo.recording import Steps, say, values
from tf_wu_shard.tensorflow_private import trace_watch
from tools.gpu.programs import PROGRAMS, Program, reordered

_SEED = 20

# The share of its time after which a launch writes down where each of its threads is.
_STACKS_AT = 0.9


class _SynchronisedSteps(Steps):
    """Steps that are over when every device is done; memory is counted from the warm-up's end."""

    def __init__(self, gpus: Sequence[str], warmup_steps: int) -> None:
        super().__init__()
        self._gpus, self._warmup_steps = gpus, warmup_steps

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        # A loss can be read before the update that follows it has run.
        tf.test.experimental.sync_devices()
        super().on_train_batch_end(batch, logs)
        if batch + 1 == self._warmup_steps:
            for gpu in self._gpus:
                tf.config.experimental.reset_memory_stats(gpu)


class _Collectives:
    """Counts the collectives of every function that is traced."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def see(self, graph: Any) -> None:
        counts = collections.Counter(
            (op.type, op.device, op.node_def.attr["communication_hint"].s.decode())
            for op in graph.get_operations()
            if op.type.startswith("Collective")
        )
        self.found += [
            {"function": graph.name, "op": op, "device": device, "hint": hint, "count": count}
            for (op, device, hint), count in sorted(counts.items())
        ]


def train(job: Mapping[str, Any]) -> dict[str, Any]:
    """Trains, and writes the tensors if they are wanted.

    Args:
        job: What `launches.job_of` returns.

    Returns:
        What was found, as JSON knows it. `parameters`; `losses` and `step_s`, one each step;
        `slot_bytes`, of whole slots; `memory`, per GPU the bytes in use after the last step and at
        most since the warm-up, none on CPUs; `replicas`, a hash of each replica's weights; `slots`,
        a hash; `collectives`, of every traced function; `reports`, the package's own.
    """
    say({"at": "making the strategy"})
    if not job["timed"]:
        # Other kernels may add up in another order each time, or by what they see around a sum.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        tf.config.experimental.enable_op_determinism()
    devices, strategy = _strategy(job["replicas"], job["on_gpus"])
    if job["sharded"]:
        training.shard_or_raise(dialect="collective")
    program = PROGRAMS[job["program"]].in_size(job["tiny"])
    say({"at": "building the model"})
    model = _model(program, strategy)
    gpus = devices if job["on_gpus"] else []
    steps, collectives = _SynchronisedSteps(gpus, job["warmup_steps"]), _Collectives()
    inputs, targets = _examples(program, job)
    say({"at": "the first step, which is traced"})
    with trace_watch.watching(collectives.see):
        model.fit(
            inputs,
            targets,
            batch_size=program.batch * job["replicas"],
            shuffle=False,
            verbose=0,
            callbacks=[steps],
        )
    memory = [{"device": gpu, **tf.config.experimental.get_memory_info(gpu)} for gpu in gpus]
    say({"at": "reading weights and slots"})
    weights, slots = values(model.weights), values(model.optimizer.variables)
    if not job["timed"]:
        np.savez(pathlib.Path(job["folder"], "weights.npz"), allow_pickle=False, **weights)
        np.savez(pathlib.Path(job["folder"], "slots.npz"), allow_pickle=False, **slots)
    return {
        "parameters": model.count_params(),
        "losses": steps.losses,
        "step_s": steps.seconds,
        "slot_bytes": training.slot_bytes(model),
        "memory": memory,
        "replicas": [_hash(copies) for copies in _copies(model, strategy, job["replicas"])],
        "slots": _hash(slots.values()),
        "collectives": collectives.found,
        "reports": [json.loads(report.to_json()) for report in tf_wu_shard.reports()],
    }


def _strategy(replicas: int, on_gpus: bool) -> tuple[list[str], tf.distribute.Strategy]:
    if not on_gpus:
        return [], training.mirrored_strategy(replicas)
    # TensorFlow takes the memory of all GPUs that it sees.
    tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[:replicas], "GPU")
    devices = [f"GPU:{index}" for index in range(replicas)]
    return devices, tf.distribute.MirroredStrategy(devices)


def _model(program: Program, strategy: tf.distribute.Strategy) -> keras.Model:
    keras.config.set_dtype_policy(program.policy)
    keras.utils.set_random_seed(_SEED)
    with strategy.scope():
        model = models.build(program.model, **program.shape, **program.inner)
        model.compile(optimizers.make(program.optimizer), models.loss(program.model))
    return model


def _examples(program: Program, job: Mapping[str, Any]) -> list[np.ndarray]:
    count = program.examples(job["steps"], job["replicas"])
    arrays = models.data(program.model, count, seed=_SEED, **program.shape)
    if not job["reordered"]:
        return list(arrays)
    return [reordered(array, job["replicas"], program.batch) for array in arrays]


def _copies(
    model: keras.Model, strategy: tf.distribute.Strategy, replicas: int
) -> list[list[np.ndarray]]:
    """Per replica its own copies of the weights."""
    found: list[list[np.ndarray]] = [[] for _ in range(replicas)]
    for weight in model.trainable_variables:
        local = strategy.experimental_local_results(weight.value)
        for replica, copy in zip(found, local, strict=True):
            replica.append(copy.numpy())
    return found


def _hash(arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def main(argument: str) -> int:
    """Runs a job and writes its facts; returns the exit status."""
    job = json.loads(argument)
    faulthandler.enable()
    faulthandler.dump_traceback_later(_STACKS_AT * job["limit_s"])
    facts = train(job)
    pathlib.Path(job["folder"], "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
